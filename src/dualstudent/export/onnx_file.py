"""ONNX: one file that runs without Python's machine learning, in onnxruntime and elsewhere."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from dualstudent.errors import UserError
from dualstudent.export.deployed import DeployedModel
from dualstudent.export.file_format import FileFormat

LARGEST = 2**31 - 2**24  # bytes: 2 GB is the limit of a protobuf, the graph needs some of them


class OnnxFile(FileFormat):
    """Input ``images`` (batch, channels, H, W) uint8, output ``probabilities`` (batch, C).

    The card is in ``metadata_props``, a text per key.
    """

    suffix = ".onnx"
    packages = ("onnx", "onnxscript", "onnxruntime")

    def write(self, model: DeployedModel, path: Path) -> None:
        size = sum(tensor.nbytes for tensor in model.state_dict().values())
        if size > LARGEST:
            raise UserError(
                f"the weights of {model.card.student} have {size / 1e9:.1f} GB, one ONNX file "
                f"holds {LARGEST / 1e9:.1f} GB; use --to torch-export or safetensors"
            )
        with _quiet():
            program = torch.onnx.export(
                model,
                (model.example(),),
                dynamo=True,
                input_names=["images"],
                output_names=["probabilities"],
                dynamic_shapes={"images": {0: "batch"}},
                verbose=False,
            )
        assert program is not None
        for node in program.model.graph:  # which line of which file on this machine made it
            node.metadata_props.clear()
        program.model.metadata_props.update(model.card.as_texts())
        program.save(path, external_data=False)

    def run(self, path: Path, images: Tensor) -> Tensor:
        from onnxruntime import InferenceSession  # noqa: PLC0415  of the extra "export"

        session = InferenceSession(path, providers=["CPUExecutionProvider"])
        (probabilities,) = session.run(["probabilities"], {"images": images.numpy()})
        return torch.from_numpy(probabilities)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch says about its own inside, and about packages that we do not use."""
    registration = logging.getLogger("torch.onnx._internal.exporter._registration")
    before = registration.level
    registration.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)
        try:
            yield
        finally:
            registration.setLevel(before)
