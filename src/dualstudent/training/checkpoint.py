"""Saving and restoring all that changes during a run: tensors as safetensors, the rest as JSON.

Nothing is pickled, so opening a stranger's file runs no code.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from dualstudent.atomic import atomic_write
from dualstudent.errors import UserError

_NOTES = "dualstudent"
_POSITION = {"step", "seconds", "metrics_size", "names"}


def write_tensors(path: Path, tensors: dict[str, Tensor], notes: dict[str, Any]) -> None:
    """Replace ``path`` in one go: after a crash it holds the old content or the new."""
    contiguous = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    with atomic_write(path) as partial:
        save_file(contiguous, partial, metadata={_NOTES: json.dumps(notes)})


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and notes of a file of :func:`write_tensors`."""
    with _opened(path) as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return tensors, _notes(file)


def save_checkpoint(
    path: Path,
    method: nn.Module,
    optimizers: Sequence[Optimizer],
    sums: Tensor,
    index: dict[str, Any],
) -> None:
    """Write down where a run stands.

    Args:
        path: of the checkpoint.
        method: students and whatever else it remembers.
        optimizers: one per student.
        sums: of the loss terms since the epoch began.
        index: what else is needed to continue, as JSON.
    """
    tensors = {f"method/{name}": tensor for name, tensor in method.state_dict().items()}
    for number, optimizer in enumerate(optimizers):
        for place, state in optimizer.state_dict()["state"].items():
            for key, value in state.items():
                if value is not None:
                    tensors[f"optimizer/{number}/{place}/{key}"] = value
    write_tensors(path, tensors | {"sums": sums}, index)


def restore_checkpoint(
    path: Path, method: nn.Module, optimizers: Sequence[Optimizer]
) -> tuple[Tensor, dict[str, Any]]:
    """Bring students and optimizers to where a checkpoint left them; returns sums and index."""
    tensors, index = read_tensors(path)
    prefix = "method/"
    states = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
    try:
        method.load_state_dict(states)
    except RuntimeError as error:
        raise UserError(f"{path}: belongs to another recipe or version") from error
    for number, optimizer in enumerate(optimizers):
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        restored: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            if name.startswith(f"optimizer/{number}/"):
                place, key = name.split("/")[2:]
                # Laid out in memory like its parameter, so that arithmetic runs the same way.
                state = torch.empty_like(parameters[int(place)]).copy_(value)
                restored.setdefault(int(place), {})[key] = state
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": restored, "param_groups": groups})
    if "sums" not in tensors or not index.keys() >= _POSITION:
        raise UserError(f"{path}: is not a checkpoint")
    return tensors["sums"], index


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as a file of dualstudent ({error!r})") from error


def _notes(file: Any) -> dict[str, Any]:
    notes = json.loads((file.metadata() or {})[_NOTES])
    if not isinstance(notes, dict):
        raise ValueError("its notes are no JSON object")
    return notes
