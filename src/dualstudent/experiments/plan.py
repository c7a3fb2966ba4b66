"""From an experiment to its runs: which recipes, under which names."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from dualstudent.errors import UserError
from dualstudent.experiments.panels import TWO_CLASSES, misfit
from dualstudent.experiments.schema import BudgetName, Cell, Experiment, Table
from dualstudent.recipes.reading import (
    apply_changes,
    merge,
    move_key,
    recipe_table,
    rename_old_keys,
    validate,
)
from dualstudent.recipes.schema import Recipe

_SAID_OTHERWISE = {
    "seed": "the seeds are 0, 1, …; say how many by --seeds",
    # It would be part of what defines a run, and finished ones would be run again.
    "data.folder": "name the data folder by the environment variable DUALSTUDENT_DATA",
}

# Keys that were renamed: a digest has their first names, so that runs made before are found.
_NAMES_IN_DIGESTS = {"normalization": "normalisation", "transforms.weak": "augmentation"}
_UNNAMED_ONCE = ("sgd", "cosine", "cyclic")  # the optimizer and the schedules without a name


@dataclass(frozen=True)
class Plan:
    """The runs of an experiment within a budget.

    Attributes:
        experiment: what is to be shown.
        budget: at which size.
        seeds: runs of each cell, with the seeds 0, 1, …
        recipes: cell → its recipe, with seed 0.
        wanted: those of the cells that are to be run; of the others, what is there is shown.
        changes: what was set in every run, ``"key=value"`` each.
    """

    experiment: Experiment
    budget: BudgetName
    seeds: int
    recipes: dict[Cell, Recipe]
    wanted: list[Cell]
    changes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The experiment's; another one if runs are changed, whose table is another table."""
        if not self.changes:
            return self.experiment.name
        return f"{self.experiment.name}-{_digest(apply_changes({}, self.changes))}"

    @property
    def differences(self) -> list[str]:
        """How all runs differ from the paper's, a sentence each."""
        small = [f"Made smaller: {self.experiment.cpu.smaller}."] if self.budget == "cpu" else []
        other = [f"Changed in every run: {', '.join(self.changes)}."] if self.changes else []
        gone = [str(c) for c in self.experiment.cells(self.budget) if c not in self.recipes]
        left_out = [f"Left out, as they do not allow that: {'; '.join(gone)}."] if gone else []
        return small + other + left_out

    def of_cell(self, cell: Cell) -> dict[str, Recipe]:
        """Name → recipe of the runs of one cell, a seed each."""
        seeded = (self.recipes[cell].model_copy(update={"seed": s}) for s in range(self.seeds))
        return {run_name(recipe): recipe for recipe in seeded}

    def runs(self) -> dict[str, Recipe]:
        """Name → recipe of the wanted cells, seed by seed: an early stop leaves comparisons."""
        of_cells = [self.of_cell(cell).items() for cell in self.wanted]
        return {name: recipe for seed in zip(*of_cells, strict=True) for name, recipe in seed}


def plan(
    experiment: Experiment,
    budget: BudgetName,
    seeds: int | None = None,
    changes: Sequence[str] = (),
    only: str = "",
) -> Plan:
    """What is to be run for an experiment.

    Args:
        experiment: what is to be shown.
        budget: ``"full"`` as in the paper, or ``"cpu"``.
        seeds: how many runs a cell has; default: as the experiment says for the budget.
        changes: ``"key=value"`` each, on top of everything else, in every run. A cell that does
            not know such a setting is left out, unless it is wanted.
        only: run the cells in whose name this occurs, whatever the case.

    Example:
        >>> from dualstudent.experiments.reading import load_experiment
        >>> recipes = plan(load_experiment("table1"), "full").recipes
        >>> recipes[Cell("DS (600)", "2k labels")].schedule.epochs
        600
    """
    for change in changes:
        key = change.partition("=")[0].strip()
        if key in _SAID_OTHERWISE:
            raise UserError(f"--set {key}: {_SAID_OTHERWISE[key]}")
    wanted = _cells_with(only, experiment, budget)
    recipes = {c: _recipe(experiment, budget, c) for c in experiment.cells(budget)}
    if changes:
        recipes = _changed(experiment, budget, changes, wanted)
    _check_followed(experiment, recipes)
    return Plan(
        experiment, budget, seeds or experiment.seeds_of(budget), recipes, wanted, tuple(changes)
    )


def run_name(recipe: Recipe) -> str:
    """Readable, and different for any two recipes that define different runs.

    Experiments that need the same run find it under the same name. Settings at their default
    do not take part, so that a setting that is new keeps the names of runs made before.
    """
    stated = _stated(recipe)
    del stated["seed"]
    data = recipe.data
    where = "-".join(data.domains)
    labels = str(data.labels).replace("%", "percent")
    return f"{recipe.method.name}-{where}-{labels}-{_digest(stated)}-seed{recipe.seed}"


def _digest(table: Table) -> str:
    for name, first in _NAMES_IN_DIGESTS.items():
        table = move_key(table, name, first)
    text = json.dumps(table, sort_keys=True, default=str)  # TOML has dates, too
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _cells_with(text: str, experiment: Experiment, budget: BudgetName) -> list[Cell]:
    cells = experiment.cells(budget)
    found = [cell for cell in cells if text.casefold() in str(cell).casefold()]
    if not found:
        rows, columns = ({getattr(c, part): 0 for c in cells} for part in ("row", "column"))
        raise UserError(
            f"--only {text!r} fits no cell of {experiment.name}, which are called ROW, COLUMN; "
            f"its rows are {'; '.join(rows)}; its columns {'; '.join(columns)}"
        )
    return found


def _changed(
    experiment: Experiment, budget: BudgetName, changes: Sequence[str], wanted: Sequence[Cell]
) -> dict[Cell, Recipe]:
    """The cells that allow the changes; each that is wanted must."""
    recipes, refused = {}, {}
    for cell in experiment.cells(budget):
        try:
            recipes[cell] = _recipe(experiment, budget, cell, changes)
        except UserError as error:
            refused[cell] = error
    for cell in wanted:
        if cell in refused:
            advice = "; --only runs the cells that allow it" if recipes else ""
            raise UserError(f"{refused[cell]}{advice}") from refused[cell]
    return recipes


def _check_followed(experiment: Experiment, recipes: Mapping[Cell, Recipe]) -> None:
    followed = {
        (recipe.data.classes, recipe.evaluation.track)
        for cell, recipe in recipes.items()
        if experiment.figure == "coupling" and experiment.row(cell.row).panel == TWO_CLASSES
    }
    if len(followed) > 1:
        raise UserError(
            f"{experiment.name}: panel {TWO_CLASSES!r} compares its rows sample by sample; give "
            "them the same data.classes and evaluation.track"
        )


def _recipe(
    experiment: Experiment, budget: BudgetName, cell: Cell, changes: Sequence[str] = ()
) -> Recipe:
    where = f"of {experiment.name}, {cell}"
    recipe = validate(apply_changes(_table(experiment, budget, cell), changes), where)
    if experiment.figure == "coupling":  # what a run has not kept cannot be drawn after it
        fault = misfit(experiment.row(cell.row).panel, recipe)
        if fault:
            raise UserError(f"recipe {where}: {fault}")
    return recipe


def _table(experiment: Experiment, budget: BudgetName, cell: Cell) -> Table:
    row, cpu = experiment.row(cell.row), experiment.cpu
    column = next(c for c in experiment.columns_of(budget) if c.name == cell.column)
    base = row.recipe or column.recipe or experiment.recipe
    layers = [row.settings, column.settings]
    if budget == "cpu":
        base = cpu.recipe or base
        layers += [cpu.settings, cpu.rows[cell.row]]
    table = recipe_table(base)
    for layer in layers:
        table = merge(table, rename_old_keys(layer, f"experiment {experiment.name}"))
    return table | {"description": f"{experiment.name}: {cell}"}


def _stated(settings: BaseModel) -> dict[str, Any]:
    """What is not at its default, except names, which tell methods and networks apart."""
    values = settings.model_dump(mode="json")
    stated: dict[str, Any] = {}
    for key, field in type(settings).model_fields.items():
        value = getattr(settings, key)
        if isinstance(value, BaseModel):
            stated[key] = _stated(value)
        elif key == "name" and value in _UNNAMED_ONCE:
            continue
        elif key in ("name", "seed") or (key != "description" and value != field.default):
            stated[key] = values[key]
    return stated
