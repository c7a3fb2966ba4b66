"""Checkpoints: tensors as safetensors, everything else as JSON in the header.

Nothing is pickled, so that opening an untrusted file cannot run code.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.optim import Optimizer

from dualstudent.atomic import atomic_write
from dualstudent.errors import UserError
from dualstudent.training.state import TrainState

_NOTES = "dualstudent"
_REQUIRED_NOTES = {"step", "seconds", "metrics_size", "names"}


def write_tensors(path: Path, tensors: dict[str, Tensor], notes: dict[str, Any]) -> None:
    """Write tensors and JSON notes to ``path`` atomically."""
    contiguous = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    with atomic_write(path) as partial:
        save_file(contiguous, partial, metadata={_NOTES: json.dumps(notes)})


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read tensors and notes written by :func:`write_tensors`.

    Raises:
        UserError: if the file cannot be read.
    """
    with _open(path) as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return tensors, _read_notes(file)


def save_checkpoint(path: Path, state: TrainState, sums: Tensor, metrics_size: int) -> None:
    """Save the state of a training.

    Args:
        path: file to write.
        state: state of this process.
        sums: (ranks, terms), sums of the loss terms in this epoch for every process.
        metrics_size: current length of the metrics file in bytes.
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
    notes = {
        "step": state.step,
        "stage": state.stage,
        "seconds": state.seconds,
        "metrics_size": metrics_size,
        "names": state.terms,
        "optimizers": numbers,
    }
    write_tensors(path, tensors | {"sums": sums}, notes)


def read_stage(path: Path) -> int:
    """Read the stage of a checkpoint, whose method must exist before it can be restored."""
    with _open(path) as file:
        return int(_read_notes(file).get("stage", 0))


def restore_checkpoint(path: Path, state: TrainState, rank: int, ranks: int) -> int:
    """Restore a state from a checkpoint.

    Args:
        path: file to read.
        state: a state of the same stage of the same recipe; changed in place.
        rank: rank of this process.
        ranks: number of processes.

    Returns:
        The length of the metrics file at the checkpoint, in bytes.

    Raises:
        UserError: if the file is not a checkpoint of this recipe and version.
    """
    tensors, notes = read_tensors(path)
    if "sums" not in tensors or not notes.keys() >= _REQUIRED_NOTES:
        raise UserError(f"{path}: is not a checkpoint")
    try:
        state.method.load_state_dict(_strip_prefix("method/", tensors))
    except RuntimeError as error:
        raise UserError(f"{path}: belongs to another recipe or version") from error
    for number, optimizer in enumerate(state.optimizers):
        values = _strip_prefix(f"optimizer/{number}/", tensors | notes.get("optimizers", {}))
        _restore_optimizer(optimizer, values)
    device = next(state.method.parameters()).device
    state.sums = tensors["sums"].reshape(ranks, -1)[rank].to(device)
    state.terms = [(student, term) for student, term in notes["names"]]
    state.step, state.seconds = notes["step"], notes["seconds"]
    metrics_size: int = notes["metrics_size"]
    return metrics_size


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


@contextmanager
def _open(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as a file of dualstudent ({error!r})") from error


def _read_notes(file: Any) -> dict[str, Any]:
    notes = json.loads((file.metadata() or {})[_NOTES])
    if not isinstance(notes, dict):
        raise ValueError("its notes are no JSON object")
    return notes
