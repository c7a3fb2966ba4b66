"""The file formats of exported networks: ONNX, torch.export and safetensors."""

import importlib
import json
import logging
import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import ValidationError
from torch import Tensor

from dualstudent.discovery import allow_imports, check_imports, find_imports
from dualstudent.errors import UserError
from dualstudent.export.model import DeployedModel, ModelCard
from dualstudent.training.checkpoint import check_finite, read_tensors, write_tensors

MAX_ONNX_BYTES = 2**31 - 2**24  # a protobuf holds 2 GB; the rest is for the graph
CARD_FILE = "dualstudent.json"


class FileFormat(ABC):
    """Writes a deployed model and its card to one file, and runs the file to check it.

    Attributes:
        suffix: of the files.
        packages: optional packages that it needs, from the extra ``export``.
    """

    suffix: ClassVar[str]
    packages: ClassVar[tuple[str, ...]] = ()

    def check_available(self) -> None:
        """Raise a ``UserError`` if a package is missing."""
        try:
            for package in self.packages:
                importlib.import_module(package)
        except ImportError as error:
            raise UserError(
                f"writing {self.suffix} files needs {', '.join(self.packages)}: "
                "install the extra 'export' of dualstudent, or use another --to"
            ) from error

    @abstractmethod
    def write(self, model: DeployedModel, path: Path) -> None:
        """Write the model to the file ``path``.

        Raises:
            UserError: if the format cannot hold it.
        """

    @abstractmethod
    def run(self, path: Path, images: Tensor) -> Tensor:
        """(N, C) probabilities of a written file, computed as its user would."""


class OnnxFile(FileFormat):
    """Runs in onnxruntime and elsewhere, without torch.

    Input ``images`` (batch, channels, H, W) uint8, output ``probabilities`` (batch, C). The card
    is in ``metadata_props``, one text per key.
    """

    suffix = ".onnx"
    packages = ("onnx", "onnxscript", "onnxruntime")

    def write(self, model: DeployedModel, path: Path) -> None:
        size = sum(tensor.nbytes for tensor in model.state_dict().values())
        if size > MAX_ONNX_BYTES:
            raise UserError(
                f"the weights of {model.card.student} have {size / 1e9:.1f} GB, but an ONNX file "
                f"holds at most {MAX_ONNX_BYTES / 1e9:.1f} GB; use --to torch-export or safetensors"
            )
        with _silence_torch():
            program = torch.onnx.export(
                model,
                (model.example_input(),),
                dynamo=True,
                input_names=["images"],
                output_names=["probabilities"],
                dynamic_shapes={"images": {0: "batch"}},
                verbose=False,
            )
        assert program is not None
        for node in program.model.graph:  # remove paths of source files on this machine
            node.metadata_props.clear()
        program.model.metadata_props.update(model.card.to_texts())
        program.save(path, external_data=False)

    def run(self, path: Path, images: Tensor) -> Tensor:
        from onnxruntime import InferenceSession  # noqa: PLC0415  of the extra "export"

        session = InferenceSession(path, providers=["CPUExecutionProvider"])
        (probabilities,) = session.run(["probabilities"], {"images": images.numpy()})
        return torch.from_numpy(probabilities)


class TorchExportFile(FileFormat):
    """Runs in any Python with torch, without dualstudent.

    Read by ``torch.export.load``; the card is the extra file ``dualstudent.json``.
    """

    suffix = ".pt2"

    def write(self, model: DeployedModel, path: Path) -> None:
        batch = torch.export.Dim("batch")
        program = torch.export.export(model, (model.example_input(),), dynamic_shapes=({0: batch},))
        for node in program.graph.nodes:  # remove paths of source files on this machine
            node.meta.pop("stack_trace", None)
        content = BytesIO()  # first: torch aborts the process if the disk is full
        torch.export.save(program, content, extra_files={CARD_FILE: model.card.model_dump_json()})
        path.write_bytes(content.getbuffer())

    def run(self, path: Path, images: Tensor) -> Tensor:
        with path.open("rb") as file, torch.inference_mode():
            probabilities: Tensor = torch.export.load(file).module()(images)
        return probabilities


class SafetensorsFile(FileFormat):
    """Weights and card; read by :func:`load_exported`, or as plain tensors."""

    suffix = ".safetensors"

    def write(self, model: DeployedModel, path: Path) -> None:
        write_tensors(path, model.state_dict(), model.card.model_dump(mode="json"))

    def run(self, path: Path, images: Tensor) -> Tensor:
        with torch.inference_mode():
            probabilities: Tensor = _load(path, *read_tensors(path))(images)  # we wrote it
        return probabilities


FORMATS: dict[str, FileFormat] = {
    "onnx": OnnxFile(),
    "torch-export": TorchExportFile(),
    "safetensors": SafetensorsFile(),
}


def load_exported(path: Path | str, imports: Collection[str] = ()) -> DeployedModel:
    """Load a file written by ``dualstudent export --to safetensors``; the run is not needed.

    Args:
        path: of the file.
        imports: import path of the network, if it is one of your own; runs its code.

    Raises:
        UserError: if the file is something else, or from an incompatible version.
    """
    path = Path(path)
    tensors, notes = read_tensors(path)
    check_imports(notes, imports, path)
    check_finite(path, tensors)
    return _load(path, tensors, notes)


def _load(path: Path, tensors: dict[str, Tensor], notes: dict[str, Any]) -> DeployedModel:
    allowed = allow_imports(find_imports(notes))
    try:
        card = ModelCard.model_validate_json(json.dumps(notes), context=allowed)
        if card.count_parameters() > 2 * sum(tensor.numel() for tensor in tensors.values()):
            raise RuntimeError("a network larger than its weights would take memory for nothing")
        model = DeployedModel(card)
        model.load_state_dict(tensors)
    except (ValidationError, RuntimeError) as error:
        raise UserError(
            f"{path}: is not a model exported by this version of dualstudent; "
            "export it again from its run"
        ) from error
    return model


@contextmanager
def _silence_torch() -> Iterator[None]:
    """Hide torch's messages about its own internals and about packages that are not used here."""
    registration = logging.getLogger("torch.onnx._internal.exporter._registration")
    before = registration.level
    registration.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)
        try:
            yield
        finally:
            registration.setLevel(before)
