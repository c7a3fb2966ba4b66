"""Equal time for all methods: lengths of training that are fixed before the first step."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from dualstudent.data.prepared import PreparedData
from dualstudent.experiments.schema import Cell
from dualstudent.parallel import Progress
from dualstudent.recipes.schema import Recipe
from dualstudent.report.format import format_count
from dualstudent.training.forecast import estimate_seconds

_ROUNDS = 3  # in which each cell is measured once; another program slows down one, not all
_CLOSE = 0.15  # share of the time that all should have, by which a method may miss it


@dataclass(frozen=True)
class Length:
    """How long a method is trained, so that it takes about as long as the first.

    Attributes:
        epochs: at least 1.
        seconds: of a run of so many epochs, and of one of the first method, as measured; None if
            an earlier version measured them, which did not keep them.
    """

    epochs: int
    seconds: tuple[float, float] | None = None


def measure_lengths(
    recipes: Mapping[Cell, Recipe],
    data: Mapping[Cell, PreparedData],
    known: Mapping[str, Length],
    progress: Progress | None = None,
) -> dict[str, Length]:
    """Find how many epochs of each cell take as long as the first row of its column.

    Only ratios of times are used. All times are measured now, on one core, as the runs are
    trained, and the cells take turns, so that other programs change little.

    Args:
        recipes: of each cell; those of the first row keep their length.
        data: of each cell.
        known: cell → length that was found before; they stay.
        progress: is told how many cells have been measured.

    Returns:
        Cell → length, of all known and all measured cells.
    """
    first = next(iter(recipes)).row
    missing = [cell for cell in recipes if str(cell) not in known]
    references = {cell: Cell(first, cell.column) for cell in missing}
    measured = {cell: recipes[cell] for cell in (*references.values(), *missing)}
    seconds = _measure(measured, data, progress)
    lengths = dict(known)
    for cell, reference in references.items():
        epoch = seconds[cell] / recipes[cell].schedule.epochs
        epochs = max(1, round(seconds[reference] / epoch))
        lengths[str(cell)] = Length(epochs, (epochs * epoch, seconds[reference]))
    return lengths


def list_unequal(lengths: Mapping[str, Length]) -> list[str]:
    """A sentence on each cell that takes clearly more or less time than the first row.

    Args:
        lengths: cell → length.

    Example:
        >>> list_unequal({"pi, 50 labels": Length(8, (32.0, 30.0))})
        []
    """
    sentences = []
    for cell, length in lengths.items():
        own, all_should = length.seconds or (0.0, 0.0)
        if abs(own - all_should) > _CLOSE * all_should:
            sentences.append(
                f"{cell} takes about {own:,.1f} s in {format_count(length.epochs, 'epoch')}, not "
                f"the {all_should:,.1f} s that all should take, as epochs are whole; a larger "
                "schedule.epochs comes closer."
            )
    return sentences


def _measure(
    recipes: Mapping[Cell, Recipe], data: Mapping[Cell, PreparedData], progress: Progress | None
) -> dict[Cell, float]:
    """Seconds of a run of each cell on one core, the least of several estimates."""
    seconds = dict.fromkeys(recipes, math.inf)
    turns = [cell for _ in range(_ROUNDS) for cell in recipes]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        if progress:
            progress.on_start(0, len(turns))
        for number, cell in enumerate(turns, start=1):
            estimate = estimate_seconds(recipes[cell], data[cell])
            seconds[cell] = min(seconds[cell], estimate)
            if progress:
                progress.on_step(number)
    finally:
        torch.set_num_threads(threads)
    return seconds
