"""Training on own images: check them, choose a recipe, and say why."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import typer

from dualstudent.cli.check import (
    build_count_table,
    describe_forecast,
    list_found,
    print_finding,
    summarize_check,
)
from dualstudent.cli.console import console, print_line
from dualstudent.data.images.cache import DecodedImages, decode_images, measure_images
from dualstudent.data.images.check import DataCheck, check_images
from dualstudent.data.images.decoding import Channels
from dualstudent.data.images.listing import Listing
from dualstudent.data.prepare import OWN_IMAGE_SIZE, prepare
from dualstudent.data.prepared import PreparedData
from dualstudent.networks.efficientnet_lite import starts_from_run
from dualstudent.progress import show_progress
from dualstudent.recipes.own_images import choose_form, complete_recipe, find_shares
from dualstudent.recipes.schema import Recipe
from dualstudent.report.format import format_duration, format_estimate
from dualstudent.training.budget import Budget, fit_epochs, measure_for_budget
from dualstudent.training.forecast import Forecast
from dualstudent.training.inspection import inspect_features
from dualstudent.training.run import Run
from dualstudent.training.trunk import TrunkTooSlow, use_trunk, use_trunk_within
from dualstudent.training.trunk_choice import TrunkChoice, choose_trunk
from dualstudent.worth import (
    can_measure,
    learns_from_unlabeled,
    list_short_trainings,
    make_opponent,
    should_refit,
)

_Trained = list[tuple[Recipe, Forecast]]


@dataclass(frozen=True)
class _Chosen:
    asked: Recipe
    changes: Sequence[str]  # of the user, and the trunk if it helps
    recipe: Recipe
    opponent: Recipe | None  # that learns from the labels alone
    reasons: dict[str, str]
    data: PreparedData
    found: DataCheck
    shares: tuple[float, ...] | None  # of the classes among the unlabeled images
    forecast: Forecast
    opponent_forecast: Forecast | None

    @property
    def opponents(self) -> _Trained:  # none or one
        if self.opponent is None or self.opponent_forecast is None:
            return []
        return [(self.opponent, self.opponent_forecast)]

    @property
    def short(self) -> _Trained:  # of cross-validation
        found = list_short_trainings(self.recipe, self.data, self.opponent is not None)
        forecasts = self.forecast, self.opponent_forecast or self.forecast
        return [(one, by) for some, by in zip(found, forecasts, strict=True) for one in some]

    @property
    def others(self) -> _Trained:  # trained beside it
        again = [(self.recipe, self.forecast)] if self.refit else []
        return [*self.opponents, *self.short, *again]

    @property
    def refit(self) -> bool:  # on all labels, in the end
        return should_refit(self.recipe, self.data)


def choose_recipe(
    asked: Recipe,
    changes: Sequence[str],
    budget: Budget | None = None,
    baseline: bool = True,
) -> tuple[Recipe, PreparedData, Recipe | None, bool]:
    """Choose a recipe that suits the images, print the reasons, and prepare the data.

    Args:
        asked: of :func:`~dualstudent.recipes.own_images.validate_request`, with the same changes.
        changes: ``"key=value"`` each; they are kept, and the other settings suit them.
        budget: time that the training may take; default: chosen as well.
        baseline: whether to train on the labels alone, too, if that can be compared.

    Returns:
        The recipe, the data, the recipe for the labels alone, if there is to be one, and whether
        the model is to be trained once more on all labels.
    """
    chosen = _choose(asked, asked.data.list_images(), changes, baseline, budget)
    if budget is not None:
        chosen = _fit_into(budget, chosen)
    recipe, data = chosen.recipe, chosen.data
    print_line(console, "the recipe chosen for these images; change anything by --set KEY=VALUE:")
    for key, reason in chosen.reasons.items():
        print_line(console, f"  {key} = {attrgetter(key)(recipe)}: {reason}")
    seconds = chosen.forecast.estimate(recipe)
    print_line(
        console,
        f"  about {format_estimate(seconds)} on this machine, as busy as it is now; for a quick "
        "try --set schedule.epochs=3",
    )
    for line in _list_more(chosen, seconds, baseline):
        print_line(console, f"  {line}")
    return recipe, data, chosen.opponent, chosen.refit


def print_forecast(asked: Recipe, listing: Listing, changes: Sequence[str]) -> None:
    """Print which recipe would be chosen, how long training would take, and what features show."""
    chosen = _choose(asked, listing, changes, baseline=True)
    seconds = chosen.forecast.estimate(chosen.recipe)
    print_line(console, describe_forecast(chosen.recipe, chosen.found.images, seconds))
    for line in _list_more(chosen, seconds, baseline=True):
        print_line(console, line)
    for key in ("network.name", "trunk.name"):
        if key in chosen.reasons:
            print_line(console, f"{key} = {attrgetter(key)(chosen.recipe)}: {chosen.reasons[key]}")
    print_line(console, f"evaluation: {chosen.reasons['data.validation']}")
    if chosen.recipe.trunk is not None:
        found = inspect_features(chosen.data, chosen.recipe.seed)
        for line in list_found(found, listing.paths, chosen.data):
            print_line(console, line)


def prepare_images(recipe: Recipe) -> PreparedData | None:
    """Prepare the data of a recipe that take long: own images, and what a trunk sees; else None."""
    settings = recipe.data
    if settings.path is None:
        return None if recipe.trunk is None else _prepare(recipe)
    size = settings.image_size or OWN_IMAGE_SIZE
    images = _decode(settings.list_images(), size, settings.channels)
    _check(images)
    return _prepare(recipe, images)


def print_next_steps(run: Run) -> None:
    """Print what to do next with a run on own images."""
    recipe, folder = (shlex.quote(str(path)) for path in (run.recipe, run.folder))
    print_line(
        console,
        f"to change the recipe: cp {recipe} mine.toml, edit it, dualstudent train mine.toml",
    )
    print_line(console, f"to use the model: dualstudent predict {folder} IMAGES -o predictions.csv")
    print_line(console, f"to see what to label next: dualstudent label {folder} -o labels.csv")


def _fit_into(budget: Budget, chosen: _Chosen) -> _Chosen:
    """Choose as many epochs as fit into what is left of a budget, with all that is compared."""
    left, usual = budget.left, chosen.recipe.epochs
    for _ in range(2):  # how often it is evaluated depends on the length, and costs time as well
        epochs = _count_fitting(chosen, left)
        if chosen.recipe.trunk is not None and epochs >= chosen.recipe.epochs:
            break  # heads on features are done by then; more would only fit the few labels
        chosen = _set_epochs(chosen, epochs)
    # The shorter the training, the larger the part of cross-validation, whose epochs are whole.
    while (epochs := _count_fitting(chosen, left)) < chosen.recipe.epochs:
        chosen = _set_epochs(chosen, epochs)
    if chosen.recipe.trunk is not None and chosen.recipe.epochs == usual:
        return chosen
    parts = {
        "features": chosen.recipe.trunk is not None,
        "the training on labels alone": chosen.opponent is not None,
        "cross-validation": bool(chosen.short),
        "the training on all labels": chosen.refit,
    }
    why = f"as many as fit into {format_duration(budget.seconds)} here"
    if counted := [name for name, is_there in parts.items() if is_there]:
        why += f", with {' and '.join(counted)}"
    return replace(chosen, reasons=chosen.reasons | {"schedule.epochs": why})


def _count_fitting(chosen: _Chosen, seconds: float) -> int:
    """Count the epochs that fit into so many seconds, if each costs what it costs now."""
    return fit_epochs(chosen.recipe, chosen.forecast, seconds, chosen.others)


def _set_epochs(chosen: _Chosen, epochs: int) -> _Chosen:
    changes = [*chosen.changes, f"schedule.epochs={epochs}"]
    recipe, _ = complete_recipe(chosen.asked, chosen.found, changes, shares=chosen.shares)
    opponent = make_opponent(recipe, chosen.data) if chosen.opponent else None
    return replace(chosen, recipe=recipe, opponent=opponent)


def _list_more(chosen: _Chosen, seconds: float, baseline: bool) -> Iterator[str]:
    """What else is trained beside a training that takes so many seconds."""
    if baseline and (line := _describe_baseline(chosen)):
        yield line
    if chosen.short:
        short = format_estimate(_estimate(chosen.short))
        why = "choose the better model" if len(chosen.data.test_labels) else "measure the accuracy"
        yield f"about {short} more in short trainings from which some labels are hidden, to {why}"
    if chosen.refit:
        again = format_estimate(seconds)
        yield f"about {again} more on all labels, also those that measure it: the model to use"


def _estimate(trained: _Trained) -> float:
    return sum(forecast.estimate(recipe) for recipe, forecast in trained)


def _describe_baseline(chosen: _Chosen) -> str:
    """How long the training on the labels alone takes, or why there is none; else nothing."""
    if chosen.opponents:
        return (
            f"about {format_estimate(_estimate(chosen.opponents))} more on the labels alone, to "
            "measure what the unlabeled images gain; train --no-baseline leaves it out"
        )
    recipe, data = chosen.recipe, chosen.data
    if learns_from_unlabeled(recipe, data) and not can_measure(recipe, data):
        why = "there are no test or validation images and no two labels of a class"
        if data.is_target is not None:
            why = "there are no test images"
        if starts_from_run(recipe.network):
            why = "the network starts from a run that has seen all labels"
        return f"what the unlabeled images gain cannot be measured: {why}"
    return ""


def _choose(
    asked: Recipe,
    listing: Listing,
    changes: Sequence[str],
    baseline: bool,
    budget: Budget | None = None,
) -> _Chosen:
    with show_progress(console, "files") as progress:
        measured = measure_images(listing, progress=progress.make_callback("measuring"))
        trying = progress.make_callback("trying a trunk")
        trunk = choose_trunk(asked, listing, changes, measured, trying)
    images = _decode(listing, *choose_form(trunk.asked, *measured))
    found = _check(images, asked.data.labels)
    while True:
        try:
            return _complete(trunk, listing, images, found, baseline, budget)
        except TrunkTooSlow:
            if trunk.otherwise is None:
                raise
            trunk = trunk.otherwise
            images = _decode(listing, *choose_form(trunk.asked, *measured))
            found = check_images(images, asked.data.labels)


def _complete(
    trunk: TrunkChoice,
    listing: Listing,
    images: DecodedImages,
    found: DataCheck,
    baseline: bool,
    budget: Budget | None,
) -> _Chosen:
    asked, changes = trunk.asked, trunk.changes
    shares = find_shares(asked, images, changes)
    recipe, reasons = complete_recipe(asked, found, changes, shares=shares)
    for key, reason in trunk.reasons.items():
        reasons[key] = f"{reasons[key]}; {reason}"
    if recipe.data.channels != images.pixels.shape[1]:  # gray images that are stored in color
        images = _decode(listing, images.pixels.shape[-1], recipe.data.channels)
    if budget is None or recipe.trunk is None:
        data = _prepare(recipe, images)
    else:
        most = recipe.trunk
        recipe, data = _prepare_within(budget.seconds / 2, recipe, images)
        for key in ("weak_views", "strong_views"):
            changes = [*changes, f"trunk.{key}={attrgetter(key)(recipe.trunk)}"]
            if recipe.trunk != most:
                reasons[f"trunk.{key}"] = "as many as can be computed in half of the budget"
    opponent = make_opponent(recipe, data) if baseline else None
    measure = Forecast if budget is None else measure_for_budget
    forecasts = measure(recipe, data), measure(opponent, data) if opponent else None
    return _Chosen(asked, changes, recipe, opponent, reasons, data, found, shares, *forecasts)


def _decode(listing: Listing, size: int, channels: Channels) -> DecodedImages:
    with show_progress(console, "files") as progress:
        return decode_images(listing, size, channels, progress=progress.make_callback("reading"))


def _check(images: DecodedImages, labels: int | str = "all") -> DataCheck:
    """Check the images and print the findings; errors end the program with exit code 2."""
    found = check_images(images, labels)
    console.print(build_count_table(found))
    print_line(console, summarize_check(found))
    for finding in found.findings:
        print_finding(finding)
    if found.has_errors:
        raise typer.Exit(2)
    return found


def _prepare(recipe: Recipe, images: DecodedImages | None = None) -> PreparedData:
    data = prepare(recipe.data, recipe.seed, recipe.transforms, recipe.normalization, images)
    if recipe.trunk is None:
        return data
    with show_progress(console, "views") as progress:
        return use_trunk(recipe, data, progress.make_callback("computing features"))


def _prepare_within(
    seconds: float, recipe: Recipe, images: DecodedImages
) -> tuple[Recipe, PreparedData]:
    """Like :func:`_prepare`, with as many views as there is time for."""
    data = prepare(recipe.data, recipe.seed, recipe.transforms, recipe.normalization, images)
    with show_progress(console, "views") as progress:
        return use_trunk_within(seconds, recipe, data, progress.make_callback("computing features"))
