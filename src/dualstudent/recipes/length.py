"""Another length for a recipe: its schedule keeps its shape."""

from dualstudent.errors import UserError
from dualstudent.recipes.reading import validate
from dualstudent.recipes.schema import Recipe


def set_length(recipe: Recipe, epochs: int) -> Recipe:
    """The recipe with another number of epochs.

    Ramp-up, warm-up, and what a method averages keep their share of it.

    Raises:
        UserError: if the recipe has stages, or its schedule does not allow that length.

    Example:
        >>> from dualstudent import load_recipe
        >>> longer = set_length(load_recipe("demo"), 40).schedule
        >>> longer.epochs, longer.rampup_epochs
        (40, 10.0)
    """
    if recipe.stages:
        raise UserError("stages have their own lengths; use a recipe without them")
    if epochs == recipe.schedule.epochs:
        return recipe
    ratio = epochs / recipe.schedule.epochs
    schedule = recipe.schedule.model_dump(exclude_none=True) | {"epochs": epochs}
    schedule |= {key: schedule[key] * ratio for key in ("rampup_epochs", "warmup_epochs")}
    if "cosine_epochs" in schedule:
        schedule["cosine_epochs"] = round(schedule["cosine_epochs"] * ratio)
    table = recipe.model_dump(mode="json", exclude_none=True) | {"schedule": schedule}
    if "average_from" in table["method"]:
        if epochs < 2:
            raise UserError(f"{recipe.method.name} averages over epochs, so it needs two or more")
        first = min(round(table["method"]["average_from"] * ratio), epochs - 1)
        table["method"]["average_from"] = max(1, first)
    return validate(table, f"with {epochs} epochs of {recipe.method.name}")
