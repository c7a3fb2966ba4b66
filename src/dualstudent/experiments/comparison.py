"""A comparison of methods: its runs, and the file that identifies it."""

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from dualstudent.atomic import atomic_write
from dualstudent.data.images.cache import DecodedImages, decode_images, measure_images
from dualstudent.data.images.check import DataCheck, check_images
from dualstudent.data.images.listing import Listing
from dualstudent.data.prepare import DataSettings, prepare
from dualstudent.data.prepared import PreparedData
from dualstudent.data.splits import count_labeled
from dualstudent.data.transforms.policy import Transforms
from dualstudent.errors import UserError
from dualstudent.experiments.lengths import Length, list_unequal, measure_lengths
from dualstudent.experiments.request import (
    MOST_SEEDS,
    ComparisonRequest,
    check_request,
    find_key,
)
from dualstudent.experiments.rows import CEILING, Row, make_ceiling, parse_row
from dualstudent.experiments.schema import Cell
from dualstudent.generators import preserve_rng
from dualstudent.networks.efficientnet_lite import starts_from_run
from dualstudent.parallel import Progress
from dualstudent.recipes.length import set_length
from dualstudent.recipes.own_images import (
    choose_form,
    complete_recipe,
    find_shares,
    locate_images,
    validate_request,
)
from dualstudent.recipes.reading import apply_changes, merge, read_recipe_table, validate
from dualstudent.recipes.schema import Recipe
from dualstudent.training.trainer import Trainer
from dualstudent.training.trunk import use_trunk
from dualstudent.training.trunk_choice import choose_trunk

_Build = Callable[[int | str, list[str]], Recipe]  # from labels and changes of the method


@dataclass(frozen=True)
class Comparison:
    """The runs of a comparison.

    Attributes:
        request: of the user.
        rows: name → row; the baselines are none of them.
        recipes: cell → recipe; the row is a method, the column a number of labels.
        lengths: cell → length, if the methods are given equal time.
        remarks: sentences on what the user should know before.
    """

    request: ComparisonRequest
    rows: dict[str, Row]
    recipes: dict[Cell, Recipe]
    lengths: dict[str, Length]
    remarks: list[str]

    def runs_of(self, cell: Cell) -> dict[str, Recipe]:
        """Name → recipe of the runs of one cell, draw by draw."""
        return {
            self._name_run(cell, draw, state): _seed(self.recipes[cell], draw, state)
            for draw in range(self.request.seeds)
            for state in range(self.request.initial_states)
        }

    def runs(self) -> dict[str, Recipe]:
        """Name → recipe of all runs, draw by draw, so that methods can be compared early."""
        of_cells = [self.runs_of(cell).items() for cell in self.recipes]
        return {name: recipe for draw in zip(*of_cells, strict=True) for name, recipe in draw}

    def draws_of(self, column: str) -> list[Recipe]:
        """A recipe for each draw of labels of a column; its data are those of all methods."""
        recipe = next(recipe for cell, recipe in self.recipes.items() if cell.column == column)
        return [_seed(recipe, draw, state=0) for draw in range(self.request.seeds)]

    def _name_run(self, cell: Cell, draw: int, state: int) -> str:
        labels = name_labels(self.recipes[cell])
        return f"{self.rows[cell.row].file_name}-{labels}-draw{draw}-state{state}"

    def save(self) -> None:
        """Write what identifies the comparison into its folder."""
        self.request.folder.mkdir(parents=True, exist_ok=True)
        content = self.request.identity | {
            "epochs": {cell: length.epochs for cell, length in self.lengths.items()},
            "seconds": {cell: length.seconds for cell, length in self.lengths.items()},
        }
        with atomic_write(_find_file(self.request)) as partial:
            partial.write_text(json.dumps(content, indent=1) + "\n", "utf-8")


def plan_comparison(request: ComparisonRequest, progress: Progress | None = None) -> Comparison:
    """Plan the runs, and check all that can be checked before a long training.

    Args:
        request: of the user.
        progress: is told how many images have been read, and how many methods measured.

    Raises:
        UserError: if names or settings are wrong, a method does not fit, there are not so many
            labels, or the folder holds something else.
    """
    check_request(request)
    rows = [parse_row(text) for text in request.methods]
    lengths = _read_lengths(request)
    build, default = _find_builder(request, progress)
    columns = request.labels or (default,)
    rows += [make_ceiling(build(columns[0], []))] if request.ceiling else []
    recipes = _build_recipes(request, build, columns, rows)
    data = _prepare_cells(recipes, progress)
    steps = _check_methods(recipes, data)
    recipes |= _lengthen_ceiling(recipes, steps)
    if request.equal == "time":
        timed = {cell: each for cell, each in recipes.items() if cell.row != CEILING}
        lengths = measure_lengths(timed, data, lengths, progress)
        recipes |= {
            cell: set_length(each, lengths[str(cell)].epochs) for cell, each in timed.items()
        }
        _check_methods(recipes, data)
    remarks = _list_remarks(request, rows, recipes)
    remarks += list_unequal({str(c): lengths[str(c)] for c in recipes if str(c) in lengths})
    return Comparison(request, {row.name: row for row in rows}, recipes, lengths, remarks)


def _is_of_method(change: str) -> bool:
    return find_key(change).startswith("method.")


def _build_recipes(
    request: ComparisonRequest, build: _Build, columns: Sequence[int | str], rows: Sequence[Row]
) -> dict[Cell, Recipe]:
    """The recipe of each cell, with the row's own settings."""
    of_methods = list(filter(_is_of_method, request.changes))
    recipes = {}
    for labels in columns:
        for row in rows:
            own = [c for c in of_methods if row in _find_owners(c, rows)]
            recipe = build(labels, [*own, *row.changes])
            _check_data(recipe, row)
            recipes[Cell(row.name, f"{labels} labels")] = recipe
    return recipes


def _check_data(recipe: Recipe, row: Row) -> None:
    if recipe.data.split is not None:
        raise UserError(
            f"data.split = {recipe.data.split}: a comparison draws the labels by seed; leave it out"
        )
    if row.name == CEILING and (recipe.data.target or recipe.stages):
        raise UserError(
            "--ceiling needs a recipe without data.target and without stages; leave it out"
        )


def _find_owners(change: str, rows: Sequence[Row]) -> list[Row]:
    """The rows that a change of the section ``method`` is for: those that have the setting.

    If none has it, it is for all, so that it is refused with a suggestion.
    """
    return [row for row in rows if row.has_setting(find_key(change))] or list(rows)


def _find_builder(
    request: ComparisonRequest, progress: Progress | None
) -> tuple[_Build, int | str]:
    """How the recipe of a cell is built, and the number of labels if none is asked for."""
    shared = [change for change in request.changes if not _is_of_method(change)]
    if request.recipe is not None:
        return _start_from_recipe(request.recipe, shared, request.imports)
    return _start_from_images(cast(Path, request.data), request.labels, shared, progress)


def _start_from_recipe(
    name: str, shared: list[str], imports: Collection[str]
) -> tuple[_Build, int | str]:
    """How a recipe is built from one that all methods share, and its number of labels."""
    table = apply_changes(read_recipe_table(name, imports), shared)

    def build(labels: int | str, own: list[str]) -> Recipe:
        return validate(apply_changes(merge(table, {"data": {"labels": labels}}), own), name)

    return build, validate(table, name).data.labels


def _start_from_images(
    path: Path, labels: Sequence[int | str], shared: list[str], progress: Progress | None
) -> tuple[_Build, int | str]:
    """How a recipe is chosen for own images, each to suit its method, and the number of labels.

    What all share is decided by the fewest labels: a method must not gain from those hidden to it.
    """
    where, default = locate_images(path), "all"
    listing = validate_request(where, shared).data.list_images()
    known = [[*shared, f"data.labels={each}"] for each in labels or (default,)]
    asked = [(validate_request(where, each), each) for each in known]
    given = len(listing.labeled), len(listing.classes)
    fewest = min(asked, key=lambda each: count_labeled(each[0].data.labels, *given))
    changes, images, found = _examine_images(listing, *fewest, progress)

    def build(labels: int | str, own: list[str]) -> Recipe:
        wanted = [*changes, f"data.labels={labels}", *own]
        asked = validate_request(where, wanted)
        shares = find_shares(asked, images, wanted)
        return complete_recipe(asked, found, wanted, cross_validated=False, shares=shares)[0]

    return build, default


def _examine_images(
    listing: Listing, asked: Recipe, shared: list[str], progress: Progress | None
) -> tuple[Sequence[str], DecodedImages, DataCheck]:
    """Settings that suit the images, with a trunk if it helps, the images, and their check."""
    measured = measure_images(listing, progress=progress)
    trunk = choose_trunk(asked, listing, shared, measured, progress)
    size, channels = choose_form(trunk.asked, *measured)
    images = decode_images(listing, size, channels, progress=progress)
    found = check_images(images, asked.data.labels)
    if found.has_errors:
        raise UserError(f"{found.name} has errors; 'dualstudent check' says which")
    return trunk.changes, images, found


def _prepare_cells(
    recipes: Mapping[Cell, Recipe], progress: Progress | None
) -> dict[Cell, PreparedData]:
    """The data of each cell; methods with the same views share them."""
    prepared: dict[tuple[DataSettings, Transforms], PreparedData] = {}
    data = {}
    for cell, recipe in recipes.items():
        key = (recipe.data, recipe.transforms)
        if key not in prepared:
            prepared[key] = prepare(
                recipe.data, recipe.seed, recipe.transforms, recipe.normalization
            )
        data[cell] = use_trunk(recipe, prepared[key], progress)
        if not len(data[cell].test_labels):
            why = "too few labels to spare"
            if starts_from_run(recipe.network):
                why = "the network starts from a run that has seen all labels"
            raise UserError(
                f"{' '.join(recipe.data.domains)} has no test part, and {why}, so there is nothing "
                "to compare by; add test images"
            )
    return data


def _check_methods(
    recipes: Mapping[Cell, Recipe], data: Mapping[Cell, PreparedData]
) -> dict[Cell, int]:
    """Build every method once, so that mistakes show before the first step; count the steps."""
    steps = {}
    for cell, recipe in recipes.items():
        here = recipe.model_copy(update={"device": recipe.device.one_process})
        try:
            with preserve_rng(), closing(Trainer(here, data[cell])) as trainer:
                steps[cell] = trainer.total_steps
        except UserError as error:
            raise UserError(f"{cell}: {error}") from error
    return steps


def _lengthen_ceiling(
    recipes: Mapping[Cell, Recipe], steps: Mapping[Cell, int]
) -> dict[Cell, Recipe]:
    """The recipes with all labels, for about the steps of the first: their epochs have fewer.

    All columns share their runs, so one length is for all.
    """
    first = next(iter(recipes))
    return {
        cell: set_length(recipe, round(recipe.epochs * steps[first] / steps[cell]))
        for cell, recipe in recipes.items()
        if cell.row == CEILING
    }


def _list_remarks(
    request: ComparisonRequest, rows: Sequence[Row], recipes: Mapping[Cell, Recipe]
) -> list[str]:
    remarks = []
    for change in request.changes:
        if _is_of_method(change):
            owners = [row.name for row in _find_owners(change, rows)]
            if len(owners) < len(rows):
                remarks.append(
                    f"{change} is set for {', '.join(owners)}; the others have no such setting."
                )
    if request.data is not None and len(request.methods) > 1:
        remarks.append("Each method has the views, learning rate and weights that suit it.")
    remarks += _explain_averages(recipes)
    trunks = {recipe.trunk.name for recipe in recipes.values() if recipe.trunk is not None}
    remarks += [f"All learn from the features of {trunk}, which is frozen." for trunk in trunks]
    data = [recipe.data for cell, recipe in recipes.items() if cell.row != CEILING]
    if any(d.labels == "all" and not d.validation and not d.images for d in data):
        remarks.append(
            "With all labels there is nothing to draw: the spread is that of the initial states."
        )
    if request.seeds == 1:
        remarks.append(
            "One seed has no spread: no intervals and no p-values; use --seeds 2 or more."
        )
    return remarks


def _explain_averages(recipes: Mapping[Cell, Recipe]) -> list[str]:
    """Say which methods average ℒ_cls over what, if not all do alike: their weights differ then."""
    rows: dict[str, dict[str, None]] = {}
    for cell, recipe in recipes.items():
        average = getattr(recipe.method, "classification_average", None)
        if average in ("batch", "labeled"):  # methods of others may mean anything by it
            rows.setdefault(average, {})[cell.row] = None
    if len(rows) < 2:
        return []
    batch, labeled = (", ".join(rows[average]) for average in ("batch", "labeled"))
    return [
        f"The cross entropy is averaged over the batch for {batch}, over its labeled samples for "
        f"{labeled}; --set method.classification_average=labeled makes them alike."
    ]


def _find_file(request: ComparisonRequest) -> Path:
    return request.folder / "comparison.json"


def _read_lengths(request: ComparisonRequest) -> dict[str, Length]:
    """The lengths that were measured before; empty for a new comparison.

    Raises:
        UserError: if the folder holds something else.
    """
    file, folder = _find_file(request), request.folder
    if not file.is_file():
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UserError(f"{folder} already exists and is no comparison; choose another folder")
        return {}
    try:
        found = json.loads(file.read_text("utf-8"))
        seconds = found.get("seconds", {})  # an earlier version kept none
        lengths = {
            cell: Length(epochs, _parse_seconds(seconds.get(cell)))
            for cell, epochs in found["epochs"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{file}: cannot be read ({error!r}); choose another folder") from error
    other = [key for key, value in request.identity.items() if found.get(key) != value]
    if other:
        raise UserError(
            f"{folder} holds another comparison: it differs in {', '.join(other)}; choose another "
            "folder"
        )
    return lengths


def _parse_seconds(kept: list[float] | None) -> tuple[float, float] | None:
    if kept is None:
        return None
    own, all_should = kept
    if not (math.isfinite(own) and math.isfinite(all_should)):
        raise ValueError(f"seconds: {own}, {all_should}")
    return own, all_should


def name_labels(recipe: Recipe) -> str:
    """The number of labels of a recipe, in a form that is safe for file names."""
    return str(recipe.data.labels).replace("%", "percent")


def _seed(recipe: Recipe, draw: int, state: int) -> Recipe:
    """The recipe of one run: the draw decides the labels, both decide all else.

    The first state of a draw has its seed, as in a run without ``split_seed``.
    """
    data = recipe.data.model_copy(update={"split_seed": draw})
    return recipe.model_copy(update={"seed": draw + MOST_SEEDS * state, "data": data})
