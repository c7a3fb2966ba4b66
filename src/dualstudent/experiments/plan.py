"""The runs of an experiment: their recipes and names."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from dualstudent.errors import UserError
from dualstudent.experiments.schema import (
    DISTANCE,
    TWO_CLASSES,
    BudgetName,
    Cell,
    Experiment,
    Table,
)
from dualstudent.methods import (
    CSSettings,
    DualStudentSettings,
    MeanTeacherSettings,
    MethodSettings,
)
from dualstudent.recipes.reading import (
    apply_changes,
    find_stated,
    merge,
    move_key,
    read_recipe_table,
    rename_old_keys,
    validate,
    warn_of_changes,
)
from dualstudent.recipes.schema import Recipe

_REFUSED_CHANGES = {
    "seed": "the seeds are 0, 1, …; set their number with --seeds",
    # It would change the name of a run, so that finished runs would be repeated.
    "data.folder": "set the data folder with the environment variable DUALSTUDENT_DATA",
}

# Methods that a panel of figure "coupling" can show.
_PANEL_METHODS: dict[str, tuple[type[MethodSettings], ...]] = {
    DISTANCE: (MeanTeacherSettings, CSSettings, DualStudentSettings),  # with two networks
    TWO_CLASSES: (MeanTeacherSettings, DualStudentSettings),  # fₛ, and f₁ with f₂
}

# Renamed keys: digests use the old names, so that older runs are found.
_NAMES_IN_DIGESTS = {"normalization": "normalisation", "transforms.weak": "augmentation"}
_NOT_IN_DIGESTS = ("sgd", "cosine", "cyclic")  # names that older recipes did not have


@dataclass(frozen=True)
class Plan:
    """The runs of an experiment within a budget.

    Attributes:
        experiment: the table or figure.
        budget: its size.
        seeds: number of runs per cell, with the seeds 0, 1, …
        recipes: cell → recipe with seed 0.
        wanted: the cells to run; finished runs of other cells are shown as well.
        changes: ``"key=value"`` settings of every run.
    """

    experiment: Experiment
    budget: BudgetName
    seeds: int
    recipes: dict[Cell, Recipe]
    wanted: list[Cell]
    changes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the folder of results; changed runs have another one."""
        if not self.changes:
            return self.experiment.name
        return f"{self.experiment.name}-{_compute_digest(apply_changes({}, self.changes))}"

    @property
    def differences(self) -> list[str]:
        """Sentences on how all runs differ from the paper's."""
        small = [f"Made smaller: {self.experiment.cpu.smaller}."] if self.budget == "cpu" else []
        other = [f"Changed in every run: {', '.join(self.changes)}."] if self.changes else []
        gone = [str(c) for c in self.experiment.cells(self.budget) if c not in self.recipes]
        left_out = [f"Left out, as they do not allow that: {'; '.join(gone)}."] if gone else []
        return small + other + left_out

    def runs_of(self, cell: Cell) -> dict[str, Recipe]:
        """Name → recipe of the runs of one cell, one per seed."""
        seeded = (self.recipes[cell].model_copy(update={"seed": s}) for s in range(self.seeds))
        return {run_name(recipe): recipe for recipe in seeded}

    def runs(self) -> dict[str, Recipe]:
        """Name → recipe of all wanted runs, seed by seed, so that cells can be compared early."""
        of_cells = [self.runs_of(cell).items() for cell in self.wanted]
        return {name: recipe for seed in zip(*of_cells, strict=True) for name, recipe in seed}


def plan(
    experiment: Experiment,
    budget: BudgetName,
    seeds: int | None = None,
    changes: Sequence[str] = (),
    only: str = "",
) -> Plan:
    """Plan the runs of an experiment.

    Args:
        experiment: the table or figure.
        budget: ``"full"`` as in the paper, or ``"cpu"``.
        seeds: number of runs per cell; default: that of the experiment for the budget.
        changes: ``"key=value"`` settings of every run. Cells that do not have such a setting are
            left out; if ``only`` selects them, this is an error.
        only: run only cells whose name contains this text, ignoring case.

    Example:
        >>> from dualstudent.experiments.reading import load_experiment
        >>> recipes = plan(load_experiment("table1"), "full").recipes
        >>> recipes[Cell("DS (600)", "2k labels")].schedule.epochs
        600
    """
    for change in changes:
        key = change.partition("=")[0].strip()
        if key in _REFUSED_CHANGES:
            raise UserError(f"{key}: {_REFUSED_CHANGES[key]}")
    wanted = _select_cells(only, experiment, budget)
    recipes = {c: _build_recipe(experiment, budget, c) for c in experiment.cells(budget)}
    if changes:
        recipes = _change_recipes(experiment, budget, changes, wanted)
    _check_tracked_samples(experiment, recipes)
    return Plan(
        experiment, budget, seeds or experiment.seeds_of(budget), recipes, wanted, tuple(changes)
    )


def run_name(recipe: Recipe) -> str:
    """A readable name with a digest of all settings that differ from their default.

    So experiments share equal runs, and new settings do not rename older runs.
    """
    changed = _find_changed_settings(recipe)
    del changed["seed"]
    data = recipe.data
    where = "-".join(data.domains)
    labels = str(data.labels).replace("%", "percent")
    return f"{recipe.method.name}-{where}-{labels}-{_compute_digest(changed)}-seed{recipe.seed}"


def _compute_digest(table: Table) -> str:
    for name, first in _NAMES_IN_DIGESTS.items():
        table = move_key(table, name, first)
    text = json.dumps(table, sort_keys=True, default=str)  # TOML may hold dates
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _select_cells(text: str, experiment: Experiment, budget: BudgetName) -> list[Cell]:
    cells = experiment.cells(budget)
    found = [cell for cell in cells if text.casefold() in str(cell).casefold()]
    if not found:
        rows, columns = ({getattr(c, part): 0 for c in cells} for part in ("row", "column"))
        raise UserError(
            f"--only {text!r} matches no cell of {experiment.name}; a cell is called ROW, COLUMN, "
            f"with the rows {'; '.join(rows)} and the columns {'; '.join(columns)}"
        )
    return found


def _change_recipes(
    experiment: Experiment, budget: BudgetName, changes: Sequence[str], wanted: Sequence[Cell]
) -> dict[Cell, Recipe]:
    """The recipes of cells that allow the changes; all wanted cells must."""
    recipes, refused = {}, {}
    for cell in experiment.cells(budget):
        try:
            recipes[cell] = _build_recipe(experiment, budget, cell, changes)
        except UserError as error:
            refused[cell] = error
    for cell in wanted:
        if cell in refused:
            advice = "; --only runs the cells that allow it" if recipes else ""
            raise UserError(f"{refused[cell]}{advice}") from refused[cell]
    return recipes


def _check_tracked_samples(experiment: Experiment, recipes: Mapping[Cell, Recipe]) -> None:
    tracked = {
        (recipe.data.classes, recipe.evaluation.track)
        for cell, recipe in recipes.items()
        if experiment.figure == "coupling" and experiment.row(cell.row).panel == TWO_CLASSES
    }
    if len(tracked) > 1:
        raise UserError(
            f"{experiment.name}: panel {TWO_CLASSES!r} compares its rows sample by sample; give "
            "them the same data.classes and evaluation.track"
        )


def _build_recipe(
    experiment: Experiment, budget: BudgetName, cell: Cell, changes: Sequence[str] = ()
) -> Recipe:
    where = f"of {experiment.name}, {cell}"
    recipe = validate(apply_changes(_build_table(experiment, budget, cell), changes), where)
    if experiment.figure == "coupling":  # a run must record what the figure shows
        problem = find_panel_problem(experiment.row(cell.row).panel, recipe)
        if problem:
            raise UserError(f"recipe {where}: {problem}")
    return recipe


def find_panel_problem(panel: str, recipe: Recipe) -> str:
    """Why a panel of figure "coupling" cannot show runs of a recipe; empty if it can.

    Example:
        >>> from dualstudent import load_recipe
        >>> find_panel_problem(DISTANCE, load_recipe("demo", ["method.name=vat"]))
        "method.name = 'vat': panel 'distance' shows mean-teacher, cs, dual-student"
    """
    shown = _PANEL_METHODS[panel]
    if type(recipe.method) not in shown:
        names = ", ".join(kind.model_fields["name"].default for kind in shown)
        return f"method.name = {recipe.method.name!r}: panel {panel!r} shows {names}"
    if panel == DISTANCE:
        return ""
    classes = recipe.data.classes
    if recipe.data.source is None:
        return f"data.path: panel {panel!r} needs a published data set"
    if classes is None or len(classes) != 2:
        return f"data.classes: panel {panel!r} needs two classes, such as ['cat', 'dog']"
    if not recipe.evaluation.track:
        return f"evaluation.track = 0: panel {panel!r} tracks test samples; use for example 500"
    return ""


def _build_table(experiment: Experiment, budget: BudgetName, cell: Cell) -> Table:
    row, cpu = experiment.row(cell.row), experiment.cpu
    column = next(c for c in experiment.columns_of(budget) if c.name == cell.column)
    base = row.recipe or column.recipe or experiment.recipe
    layers = [row.settings, column.settings]
    if budget == "cpu":
        base = cpu.recipe or base
        layers += [cpu.settings, cpu.rows[cell.row]]
    table = read_recipe_table(base)
    where = f"experiment {experiment.name}"
    layers = [rename_old_keys(layer, where) for layer in layers]
    result = table
    for layer in layers:
        result = merge(result, layer)
    if experiment.own:  # ours are meant as they are
        warn_of_changes(table, result, set().union(*map(find_stated, layers)), where)
    return result | {"description": f"{experiment.name}: {cell}"}


def _find_changed_settings(settings: BaseModel) -> dict[str, Any]:
    """Settings that differ from their default, and the names of methods and networks."""
    values = settings.model_dump(mode="json")
    changed: dict[str, Any] = {}
    for key, field in type(settings).model_fields.items():
        value = getattr(settings, key)
        if isinstance(value, BaseModel):
            changed[key] = _find_changed_settings(value)
        elif key == "name" and value in _NOT_IN_DIGESTS:
            continue
        elif key in ("name", "seed") or (key != "description" and value != field.default):
            changed[key] = values[key]
    return changed
