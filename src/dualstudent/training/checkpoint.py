"""Checkpoints: tensors as safetensors, everything else as JSON in the header.

Nothing is pickled, so that opening an untrusted file cannot run code.
"""

import errno
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import Field, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.optim import Optimizer

from dualstudent.atomic import atomic_write
from dualstudent.errors import UserError
from dualstudent.sealed import parse_object
from dualstudent.settings import Settings
from dualstudent.training.state import TrainState

_NOTES, _DIGEST = "dualstudent", "sha256"


def write_tensors(
    path: Path, tensors: dict[str, Tensor], notes: dict[str, Any], keep: Path | None = None
) -> None:
    """Write tensors, JSON notes and a digest of both to ``path`` atomically.

    Args:
        path: file to write.
        tensors: name → tensor.
        notes: anything that JSON holds.
        keep: where the file that was at ``path`` is moved to; default: it is replaced.
    """
    contiguous = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(notes)
    metadata = {_NOTES: text, _DIGEST: _hash(contiguous, text)}
    with atomic_write(path, keep) as partial:
        partial.touch()
        rights = partial.stat().st_mode  # those of other files, while save_file allows only us
        try:
            save_file(contiguous, partial, metadata=metadata)
            partial.chmod(rights)
        except SafetensorError as error:  # such as: no space left
            raise OSError(errno.EIO, f"cannot be written ({error})") from error


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read tensors and notes written by :func:`write_tensors`.

    Raises:
        UserError: if the file cannot be read, or its digest shows that it is damaged.
    """
    with _open(path) as file:
        metadata = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    # Earlier versions wrote no digest; with one, a changed name of it is another key.
    if _NOTES not in metadata or metadata.keys() - {_NOTES, _DIGEST}:
        raise UserError(f"{path}: cannot be read as a file of dualstudent")
    text = metadata[_NOTES]
    if metadata.get(_DIGEST) not in (None, _hash(tensors, text)):
        raise UserError(f"{path}: is damaged; bring the file back from a copy")
    return tensors, parse_object(text, path)


def check_finite(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Check that the weights of a file are numbers.

    Raises:
        UserError: if one is not.
    """
    for name, tensor in tensors.items():
        if not bool(tensor.isfinite().all()):
            raise UserError(f"{path}: {name} has values that are not finite; restore it")


class CheckpointNotes(Settings):
    """What a checkpoint holds beside tensors.

    Attributes:
        step: number of steps done.
        stage: number of the stage, from 0.
        seconds: duration of the training so far.
        metrics_size: length of the metrics file in bytes.
        metrics_sha256: digest of so many bytes of it; None in earlier versions.
        names: (student, name) of each loss term.
        optimizers: numbers in the state of the optimizers.
    """

    step: int = Field(ge=0)
    stage: int = Field(0, ge=0)
    seconds: float = Field(ge=0)
    metrics_size: int = Field(ge=0)
    metrics_sha256: str | None = None
    names: tuple[tuple[int, str], ...]
    optimizers: dict[str, int | float] = Field(default_factory=dict)


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint file.

    Attributes:
        path: the file.
        tensors: name → tensor.
        notes: everything else.
    """

    path: Path
    tensors: dict[str, Tensor]
    notes: CheckpointNotes


def save_checkpoint(
    path: Path,
    state: TrainState,
    sums: Tensor,
    metrics: tuple[int, str],
    keep: Path | None = None,
) -> None:
    """Save the state of a training.

    Args:
        path: file to write.
        state: state of this process.
        sums: (terms,), sums of the loss terms in this epoch.
        metrics: current length of the metrics file in bytes, and its digest.
        keep: where the checkpoint before is moved to; default: it is replaced.
    """
    tensors = {f"method/{name}": tensor for name, tensor in state.method.state_dict().items()}
    numbers: dict[str, float] = {}
    for number, optimizer in enumerate(state.optimizers):
        for place, values in optimizer.state_dict()["state"].items():
            for key, value in values.items():
                name = f"optimizer/{number}/{place}/{key}"
                if isinstance(value, Tensor):
                    tensors[name] = value
                elif value is not None:
                    numbers[name] = value
    size, digest = metrics
    notes = CheckpointNotes(
        step=state.step,
        stage=state.stage,
        seconds=state.seconds,
        metrics_size=size,
        metrics_sha256=digest,
        names=tuple(state.terms),
        optimizers=numbers,
    )
    write_tensors(path, tensors | {"sums": sums}, notes.model_dump(), keep)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        UserError: if the file is damaged, or something else.
    """
    tensors, notes = read_tensors(path)
    try:
        return Checkpoint(path, tensors, CheckpointNotes.model_validate_json(json.dumps(notes)))
    except ValidationError as error:
        raise UserError(f"{path}: is not a checkpoint") from error


def restore_checkpoint(checkpoint: Checkpoint, state: TrainState) -> None:
    """Restore a state from a checkpoint.

    Args:
        checkpoint: of the same stage of the same recipe.
        state: changed in place.

    Raises:
        UserError: if it is not a checkpoint of this recipe and version.
    """
    tensors, notes = checkpoint.tensors, checkpoint.notes
    device = next(state.method.parameters()).device
    try:
        state.method.load_state_dict(_strip_prefix("method/", tensors))
        for number, optimizer in enumerate(state.optimizers):
            values = _strip_prefix(f"optimizer/{number}/", tensors | notes.optimizers)
            _restore_optimizer(optimizer, values)
        state.sums = _read_sums(tensors["sums"], len(notes.names)).to(device)
    except (RuntimeError, ValueError, LookupError, TypeError) as error:
        raise UserError(f"{checkpoint.path}: belongs to another recipe or version") from error
    state.terms = list(notes.names)
    state.step, state.seconds = notes.step, notes.seconds


def _read_sums(sums: Tensor, terms: int) -> Tensor:
    """Return (terms,); earlier versions had a row for each process, of which this is the mean."""
    if sums.numel() == 0:
        raise ValueError("no sums")
    return sums.reshape(-1, terms).mean(dim=0)


def _restore_optimizer(optimizer: Optimizer, values: Mapping[str, Any]) -> None:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    restored: dict[int, dict[str, Any]] = {}
    for name, value in values.items():
        place, key = name.split("/")
        parameter = parameters[int(place)]
        if isinstance(value, Tensor) and value.shape == parameter.shape:
            # In the memory layout of its parameter, so that the arithmetic is the same.
            laid_out = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
            restored.setdefault(int(place), {})[key] = laid_out
        else:
            restored.setdefault(int(place), {})[key] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": restored, "param_groups": groups})


def _strip_prefix(prefix: str, named: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(prefix): v for name, v in named.items() if name.startswith(prefix)}


def _hash(tensors: Mapping[str, Tensor], notes: str) -> str:
    digest = hashlib.sha256(notes.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.cpu().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


@contextmanager
def _open(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except FileNotFoundError as error:
        raise UserError(f"{path}: is missing") from error
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as a file of dualstudent ({error!r})") from error
