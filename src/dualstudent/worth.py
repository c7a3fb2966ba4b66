"""Was it worth it? A run beside labels alone and beside baselines, and then on all labels."""

import math
import shlex
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import torch

from dualstudent.batch import count_epoch_steps
from dualstudent.data.prepared import PreparedData
from dualstudent.errors import UserError, escape_line
from dualstudent.methods.supervised import SupervisedSettings
from dualstudent.networks.efficientnet_lite import starts_from_run
from dualstudent.optimization.schedules import CosineSchedule
from dualstudent.parallel import Progress
from dualstudent.recipes.schema import EMASettings, Recipe
from dualstudent.runs import draw_page, resume, train_or_resume
from dualstudent.signals import Interrupted, StopRequest
from dualstudent.training.callbacks import Callback
from dualstudent.training.crossvalidation import (
    LABELS_ALONE,
    CrossValidation,
    Plan,
    compare_by_folds,
    count_parts,
    divide_labels,
    plan_folds,
    shorten,
)
from dualstudent.training.fine_tuning import start_from_labels
from dualstudent.training.gain import compute_gain, measure_gain
from dualstudent.training.inspection import inspect_features
from dualstudent.training.model import load_trained
from dualstudent.training.on_features import compare_on_test
from dualstudent.training.run import Run
from dualstudent.training.trainer import LossNotFinite, Trainer

_MANY_LABELS = 100  # a class; benchmarks/choose_method.py measures what 8 in place of 10 cost


def learns_from_unlabeled(recipe: Recipe, data: PreparedData) -> bool:
    """Return whether a run learns from images without a label."""
    return recipe.method.name != "supervised" and not data.fully_labeled


def can_measure(recipe: Recipe, data: PreparedData) -> bool:
    """Return whether two runs can be compared: on held-out images, or by cross-validation.

    Held-out images of the source do not count: they say nothing about the target.
    """
    if recipe.data.evaluated_part == "source validation":
        return False
    return len(data.test_labels) > 0 or can_cross_validate(recipe, data)


def can_cross_validate(recipe: Recipe, data: PreparedData) -> bool:
    """Return whether the labels themselves can tell which of two runs is better.

    Validation images tell it better, and labels of the source say nothing about the target. A
    network that starts from another run has seen all labels.
    """
    validated = recipe.data.evaluated_part == "validation" and len(data.test_labels) > 0
    if validated or data.is_target is not None or starts_from_run(recipe.network):
        return False
    return int(torch.bincount(data.labels[data.labeled]).max()) > 1  # a label must be left


def is_cross_validated(recipe: Recipe, data: PreparedData, has_opponent: bool) -> bool:
    """Return whether labels are hidden after a run: to choose between two models, or to measure.

    What learns from the features of a trunk is measured by it without an opponent, too.
    """
    measures = recipe.trunk is not None and not len(data.test_labels)
    return (has_opponent or measures) and can_cross_validate(recipe, data)


def list_short_trainings(
    recipe: Recipe, data: PreparedData, has_opponent: bool
) -> tuple[list[Recipe], list[Recipe]]:
    """List the recipes of cross-validation: like that of the run, and on the labels alone."""
    if not is_cross_validated(recipe, data, has_opponent):
        return [], []
    plan = plan_folds(recipe, data)
    parts = count_parts(divide_labels(data, recipe.seed, plan), plan)
    short = shorten(recipe, plan)
    opponent = make_opponent(short, data) if has_opponent else None
    return parts * [short], parts * [opponent] if opponent else []


def make_opponent(recipe: Recipe, data: PreparedData) -> Recipe | None:
    """Make the recipe of an honest opponent, which learns from the labels alone.

    It has the same network, data, views and optimizer, and batches of the same size, which hold
    labeled images only. It learns from strong views, for half as many steps, with a learning rate
    that comes down to 0, and evaluates an average of the weights over about the last tenth.

    Returns:
        The recipe; None if all images have labels, if the recipe has stages, if there is nothing
        to measure by, or if it goes on from a run that was not trained on labels alone, too.
    """
    if not (learns_from_unlabeled(recipe, data) and can_measure(recipe, data)) or recipe.stages:
        return None
    network = start_from_labels(recipe.network)
    if network is None:
        return None
    method = SupervisedSettings(
        view="strong" if data.train.has_strong_views else "weak",
        label_smoothing=recipe.method.label_smoothing,
        confidence_threshold=recipe.method.confidence_threshold,
    )
    epochs = math.ceil(recipe.epochs / 2)
    schedule = CosineSchedule(
        epochs=epochs,
        warmup_epochs=min(recipe.schedule.warmup_epochs, epochs / 2),
        warmup_from=recipe.schedule.warmup_from,
    )
    batch = recipe.batch
    per_epoch = count_epoch_steps(len(data.labeled), len(data.unlabeled), batch.size, batch.labeled)
    steps = schedule.epochs * max(1, per_epoch)  # training refuses a batch that cannot be filled
    ema = recipe.ema or EMASettings(decay=min(0.999, steps / (steps + 10)))
    return recipe.model_copy(
        update={"network": network, "method": method, "schedule": schedule, "ema": ema}
    )


def is_unfinished(run: Run) -> bool:
    """Return whether a trained run still has to be compared, or trained on all labels."""
    return _awaits_comparison(run) or _awaits_refit(run)


def _awaits_gain(run: Run) -> bool:
    return run.labels_only.about.is_file() and "gain" not in run.read_result()


def _awaits_comparison(run: Run) -> bool:
    on_features = run.read_recipe().trunk is not None
    return _awaits_gain(run) or (on_features and "on_features" not in run.read_result())


def _awaits_refit(run: Run) -> bool:
    return run.wants_refit and not run.refit.result.is_file()


def should_refit(recipe: Recipe, data: PreparedData) -> bool:
    """Return whether the labels that are held out for validation should be learned in the end.

    Where there are few, each of them counts; where there are many, it would only take time. If the
    user wants some of the labels only, others would be drawn.
    """
    asked, known = recipe.data, len(data.labeled) + len(data.test_labels)
    holds_out = asked.evaluated_part == "validation" and asked.labels == "all"
    return holds_out and known < _MANY_LABELS * len(data.classes)


def refit_on_all_labels(run: Run, callbacks: Callback | Sequence[Callback] = ()) -> None:
    """Train the model of a finished run once more, with the labels that were held out.

    The new model predicts and is exported from then on. Its error is not known, as no label is left
    to measure it; that of the run stays. Does nothing if the run does not ask for it, or has it.

    Args:
        run: a finished run, already compared with the labels alone.
        callbacks: receive the progress.

    Raises:
        UserError: if the data have changed.
        Interrupted: after Ctrl-C, SIGTERM or SIGHUP; the same call continues.
    """
    if not _awaits_refit(run):
        return
    load_trained(run.used)  # raises if the data have changed
    recipe = run.used.read_recipe()
    everything = recipe.data.model_copy(update={"validation": 0.0})
    recipe = recipe.model_copy(update={"data": everything})
    try:
        with _said_on(run, "all labels"):
            train_or_resume(recipe, run.refit.folder, callbacks)
    except LossNotFinite as error:
        warnings.warn(f"not trained on all labels: {escape_line(error)}", stacklevel=2)
        _add_to_result(run, {"refit": None})


@contextmanager
def _said_on(run: Run, what: str) -> Iterator[None]:
    """Say of an interrupted part of a run what it learned from, and how the run goes on."""
    try:
        yield
    except Interrupted as stop:
        command = shlex.join(["dualstudent", "resume", str(run.folder)])
        raise Interrupted(stop.number, f"{stop.done} on {what}", command) from stop


def train_on_labels(
    run: Run, callbacks: Callback | Sequence[Callback] = (), data: PreparedData | None = None
) -> None:
    """Train the opponent of a finished run to its end, on the labels alone.

    Does nothing if the run has no opponent, or was compared already.

    Args:
        run: a finished run.
        callbacks: receive the progress.
        data: the data that :func:`~dualstudent.train` was given, if any.

    Raises:
        UserError: if the data have changed.
        Interrupted: after Ctrl-C, SIGTERM or SIGHUP; the same call continues.
    """
    if not _awaits_gain(run):
        return
    try:
        with _said_on(run, "labels alone"):
            resume(run.labels_only.folder, callbacks, data)
    except LossNotFinite as error:
        warnings.warn(f"not compared with labels alone: {escape_line(error)}", stacklevel=2)
        _add_to_result(run, {"gain": None})


def compare(run: Run, progress: Progress | None = None, data: PreparedData | None = None) -> None:
    """Measure what the unlabeled images gained, and on the features of a trunk also baselines.

    Adds ``gain`` to the result of a run whose opponent is trained, and with it which of the two
    is used. Validation images choose that, or else cross-validation over the labels, which without
    held-out images also measures both: ``cross_validation``. On features, adds ``on_features`` and
    ``inspection``. Draws the page again. Does nothing if all that is there.

    Args:
        run: a finished run.
        progress: receives the number of epochs of cross-validation that are done.
        data: the data that :func:`~dualstudent.train` was given, if any.

    Raises:
        UserError: if the data have changed.
        Interrupted: after Ctrl-C, SIGTERM or SIGHUP; the same call continues, with the short
            training that was interrupted from its beginning.
    """
    if not _awaits_comparison(run):
        return
    ours, alone = load_trained(run, data), None
    if _awaits_gain(run):
        alone = load_trained(run.labels_only, data)
    has_test, on_features = len(ours.data.test_labels) > 0, ours.recipe.trunk is not None
    found = _cross_validate(run, ours, alone is not None, progress)
    measured = found.measure(ours.recipe) if found is not None and not has_test else None
    added: dict[str, Any] = {}
    if on_features:
        measured = compare_on_test(ours) if has_test else measured
        added["on_features"] = asdict(measured) if measured else None
        added["inspection"] = asdict(inspect_features(ours.data, ours.recipe.seed))
    elif measured is not None:
        added["cross_validation"] = asdict(measured)
    if alone is not None:
        added["gain"] = _measure_gain(ours, alone, found)
    _add_to_result(run, added)
    run.hidden_label_answers.unlink(missing_ok=True)
    draw_page(run, lambda: ours if run.used == run else alone or load_trained(run.used, data))


def _measure_gain(
    ours: Trainer, alone: Trainer, found: CrossValidation | None
) -> dict[str, Any] | None:
    errors = None
    if found is not None:
        errors = found.errors[ours.recipe.method.name], found.errors[LABELS_ALONE]
    if len(ours.data.test_labels):
        return asdict(measure_gain(ours, alone, errors))
    return asdict(compute_gain("cross-validation", *errors)) if errors else None


def _cross_validate(
    run: Run, ours: Trainer, has_opponent: bool, progress: Progress | None
) -> CrossValidation | None:
    """What cross-validation finds; None if it cannot be done, or is of no use."""
    recipe, data = ours.recipe, ours.data
    if not is_cross_validated(recipe, data, has_opponent):
        return None
    plan = plan_folds(recipe, data)
    recipes = {recipe.method.name: shorten(recipe, plan)}
    if has_opponent:
        recipes[LABELS_ALONE] = _shorten_opponent(run, ours, plan)
    baselines = recipe.trunk is not None and not len(data.test_labels)
    with StopRequest() as stop:
        started = False

        def on_step(done: int, total: int) -> None:
            nonlocal started
            if progress is not None:
                if not started:
                    progress.on_start(0, total)
                    started = True
                progress.on_step(done)
            if stop.received:
                command = shlex.join(["dualstudent", "resume", str(run.folder)])
                raise Interrupted(stop.received, "a part of the cross-validation", command)

        file = run.hidden_label_answers
        try:
            return compare_by_folds(data, recipes, plan, baselines, on_step, file)
        except UserError as error:  # also if the training diverged
            warnings.warn(f"not cross-validated: {escape_line(error)}", stacklevel=3)
            return None


def _shorten_opponent(run: Run, ours: Trainer, plan: Plan) -> Recipe:
    """Make the recipe of the short trainings of the opponent.

    That of :func:`make_opponent` averages its weights over a part of its steps, here of fewer.
    """
    opponent = run.labels_only.read_recipe()
    if opponent == make_opponent(ours.recipe, ours.data):
        return make_opponent(shorten(ours.recipe, plan), ours.data) or opponent
    return shorten(opponent, plan)


def _add_to_result(run: Run, added: dict[str, Any]) -> None:
    run.write_result(run.read_result() | added)
