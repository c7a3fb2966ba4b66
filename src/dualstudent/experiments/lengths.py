"""Equal time for all methods: lengths of training that are fixed before the first step."""

import math
from collections.abc import Mapping

import torch

from dualstudent.data.prepared import PreparedData
from dualstudent.experiments.schema import Cell
from dualstudent.parallel import Progress
from dualstudent.recipes.schema import Recipe
from dualstudent.training.forecast import estimate_seconds

_ROUNDS = 3  # in which each cell is measured once; another program slows down one, not all


def measure_lengths(
    recipes: Mapping[Cell, Recipe],
    data: Mapping[Cell, PreparedData],
    known: Mapping[str, int],
    progress: Progress | None = None,
) -> dict[str, int]:
    """Find how many epochs of each cell take as long as the first row of its column.

    Only ratios of times are used. All times are measured now, on one core, as the runs are
    trained, and the cells take turns, so that other programs change little.

    Args:
        recipes: of each cell; those of the first row keep their length.
        data: of each cell.
        known: cell → epochs that were found before; they stay.
        progress: is told how many cells have been measured.

    Returns:
        Cell → epochs, of all known and all measured cells.
    """
    first = next(iter(recipes)).row
    missing = [cell for cell in recipes if str(cell) not in known]
    references = {cell: Cell(first, cell.column) for cell in missing}
    measured = {cell: recipes[cell] for cell in (*references.values(), *missing)}
    seconds = _measure(measured, data, progress)
    lengths = dict(known)
    for cell, reference in references.items():
        ratio = seconds[reference] / seconds[cell]
        lengths[str(cell)] = max(1, round(recipes[cell].schedule.epochs * ratio))
    return lengths


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
