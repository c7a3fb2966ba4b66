"""Finished runs as a stranger might make them: sealed again, but with other values inside."""

import copy
import json
import random
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import tomli_w
import torch

from dualstudent import Run
from dualstudent.sealed import write_sealed
from dualstudent.training.checkpoint import read_tensors, write_tensors
from tests.support.runs import change_recipe

Change = Callable[[Run], object]

VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 10**30, 2**62, 1e308, float("nan"), float("inf"), -0.5),
    *("", "x" * 5_000, "<b>\n\ud800", "../../etc", [], {}, [[]], [None], [-1], {"a": {"a": 1}}),
    *([3, 100_000, 100_000], [1, 8, 10**9], [-1, 8, 8], {"student1": None}, [1e300] * 3),
)


def list_changes(count: int, run: Run, seed: int = 0) -> Iterator[tuple[str, Change]]:
    """Name → change of a copy of ``run``, drawn from everything that its files say."""
    draw = random.Random(seed)
    kinds = [
        *(_change_result, _change_metrics, _change_about, _change_recipe),
        *(_change_notes, _change_checkpoint, _change_tensors),
    ]
    for number in range(count):
        kind = kinds[number % len(kinds)]
        yield f"{number}: {kind.__name__}", partial(kind, draw=draw)


def _mutate(content: Any, draw: random.Random) -> Any:
    """Replace or remove one value, at any depth."""
    content = copy.deepcopy(content)
    inside = content
    while True:
        key = draw.choice(list(inside) if isinstance(inside, dict) else range(len(inside)))
        below = inside[key]
        if not (isinstance(below, dict | list) and below) or draw.random() < 0.4:
            break
        inside = below
    if draw.random() < 0.2:
        del inside[key]
    else:
        inside[key] = draw.choice(VALUES)
    return content


def _change_result(run: Run, draw: random.Random) -> None:
    write_sealed(run.result, _mutate(run.read_result(), draw))


def _change_metrics(run: Run, draw: random.Random) -> None:
    result = run.read_result()
    metrics = _mutate(run.read_metrics(), draw)
    if metrics and isinstance(metrics[-1], dict):
        result["networks"] = metrics[-1].get("test")
    del result["metrics_sha256"]
    run.metrics.write_text("".join(json.dumps(record) + "\n" for record in metrics))
    run.write_result(result)


def _change_about(run: Run, draw: random.Random) -> None:
    write_sealed(run.about, _mutate(run.read_about(), draw))


def _change_recipe(run: Run, draw: random.Random) -> None:
    table = tomllib.loads(run.recipe.read_text())
    try:
        text = tomli_w.dumps(_mutate(table, draw))
        text.encode()
    except (TypeError, UnicodeEncodeError):  # TOML has no null, nor broken text
        text = "network = [" * 3_000
    change_recipe(run, text)


def _change_notes(run: Run, draw: random.Random) -> None:
    tensors, notes = read_tensors(run.model)
    write_tensors(run.model, tensors, _mutate(notes, draw))


def _change_checkpoint(run: Run, draw: random.Random) -> None:
    """Of a run that has not finished."""
    run.result.unlink()
    tensors, notes = read_tensors(run.checkpoint)
    write_tensors(run.checkpoint, _mutate_tensors(tensors, draw), _mutate(notes, draw))


def _change_tensors(run: Run, draw: random.Random) -> None:
    tensors, notes = read_tensors(run.model)
    write_tensors(run.model, _mutate_tensors(tensors, draw), notes)


def _mutate_tensors(tensors: dict[str, torch.Tensor], draw: random.Random) -> Any:
    name = draw.choice(sorted(tensors))
    others = {key: tensor for key, tensor in tensors.items() if key != name}
    return draw.choice(
        [
            others,
            others | {name: torch.zeros(3)},
            others | {name: torch.full(tensors[name].shape, float("nan"))},
            others | {name: torch.zeros(tensors[name].shape, dtype=torch.complex64)},
            tensors | {"optimizer/0/999/momentum_buffer": torch.zeros(1)},
            tensors | {"optimizer/0/x/y/z": torch.zeros(1)},
            tensors | {"sums": torch.zeros(7, 7)},
        ]
    )
