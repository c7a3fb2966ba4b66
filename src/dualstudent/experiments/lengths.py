"""Equal time for all methods: lengths of training that are fixed before the first step."""

import math
from collections.abc import Mapping

import torch

from dualstudent.data.prepared import PreparedData
from dualstudent.errors import UserError
from dualstudent.experiments.schema import Cell
from dualstudent.parallel import Progress
from dualstudent.recipes.reading import validate
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


def set_length(recipe: Recipe, epochs: int) -> Recipe:
    """The recipe with another number of epochs; ramp-up and warm-up keep their share of it.

    Raises:
        UserError: if the recipe has stages, or its schedule does not allow that length.

    Example:
        >>> from dualstudent import load_recipe
        >>> longer = set_length(load_recipe("demo"), 40).schedule
        >>> longer.epochs, longer.rampup_epochs
        (40, 10.0)
    """
    if recipe.stages:
        raise UserError("--equal time does not go with stages; use a recipe without them")
    if epochs == recipe.schedule.epochs:
        return recipe
    ratio = epochs / recipe.schedule.epochs
    schedule = recipe.schedule.model_dump(exclude_none=True) | {"epochs": epochs}
    schedule |= {key: schedule[key] * ratio for key in ("rampup_epochs", "warmup_epochs")}
    if "cosine_epochs" in schedule:
        schedule["cosine_epochs"] = round(schedule["cosine_epochs"] * ratio)
    table = recipe.model_dump(mode="json", exclude_none=True) | {"schedule": schedule}
    return validate(table, f"with {epochs} epochs of {recipe.method.name}")


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
