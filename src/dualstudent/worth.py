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
from dualstudent.errors import escape_line
from dualstudent.methods.supervised import SupervisedSettings
from dualstudent.optimization.schedules import CosineSchedule
from dualstudent.parallel import Progress
from dualstudent.recipes.schema import EMASettings, Recipe
from dualstudent.runs import draw_page, resume, train_or_resume
from dualstudent.signals import Interrupted, StopRequest
from dualstudent.training.callbacks import Callback
from dualstudent.training.fine_tuning import start_from_labels
from dualstudent.training.gain import compute_gain, measure_gain
from dualstudent.training.inspection import inspect_features
from dualstudent.training.model import load_trained
from dualstudent.training.on_features import (
    LABELS_ALONE,
    SHORTER,
    compare_by_folds,
    compare_on_test,
    divide_labels,
)
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
    """Return whether the labels themselves are to tell how good a run is.

    That takes many trainings, so they must be short, on features of a trunk. Labels of the source
    say nothing about the target.
    """
    if recipe.trunk is None or len(data.test_labels) or data.is_target is not None:
        return False
    return int(torch.bincount(data.labels[data.labeled]).max()) > 1  # a label must be left


def count_trainings(recipe: Recipe, data: PreparedData) -> float:
    """Count the trainings of full length that a run takes, with those of cross-validation."""
    if not can_cross_validate(recipe, data):
        return 1.0
    folds = int(divide_labels(data, recipe.seed).max()) + 1
    return 1 + folds / SHORTER


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
    return _awaits_gain(run) or _awaits_baselines(run) or _awaits_refit(run)


def _awaits_gain(run: Run) -> bool:
    return run.labels_only.about.is_file() and "gain" not in run.read_result()


def _awaits_baselines(run: Run) -> bool:
    return "on_features" not in run.read_result() and run.read_recipe().trunk is not None


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


def compare_with_labels(
    run: Run, callbacks: Callback | Sequence[Callback] = (), data: PreparedData | None = None
) -> None:
    """Train the opponent of a finished run to its end; write what the unlabeled images gained.

    Adds ``gain`` to the result of the run and draws its page again. Does nothing if the run has
    no opponent, or was compared already. Without held-out images, :func:`compare_on_features`
    compares them later.

    Args:
        run: a finished run.
        callbacks: receive the progress of the opponent.
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
        return
    ours, labels_only = (load_trained(each, data) for each in (run, run.labels_only))
    if len(ours.data.test_labels):
        gain = measure_gain(ours, labels_only)
        _add_to_result(run, {"gain": asdict(gain)})
        if not _awaits_baselines(run):  # they draw it, too
            draw_page(run, lambda: labels_only if gain.labels_only_used else ours)


def compare_on_features(
    run: Run, progress: Progress | None = None, data: PreparedData | None = None
) -> None:
    """Compare a finished run on the features of a trunk with baselines on the same features.

    Adds ``on_features`` and ``inspection`` to its result and draws its page again. Without held-out
    images, all are compared by cross-validation over the labels; if there is an opponent, it adds
    ``gain``, too, and chooses the model to use. Does nothing for a run without a trunk, or if it
    was compared already.

    Args:
        run: a finished run; its opponent is trained already.
        progress: receives the number of epochs of cross-validation that are done.
        data: the data that :func:`~dualstudent.train` was given, if any.

    Raises:
        UserError: if the data have changed.
        Interrupted: after Ctrl-C, SIGTERM or SIGHUP; the same call begins anew.
    """
    if not _awaits_baselines(run):
        return
    ours = load_trained(run, data)
    added: dict[str, Any] = {"on_features": None}
    if len(ours.data.test_labels):
        added = {"on_features": asdict(compare_on_test(ours))}
    elif can_cross_validate(ours.recipe, ours.data):
        added |= _cross_validate(run, ours, progress)
    added["inspection"] = asdict(inspect_features(ours.data, ours.recipe.seed))
    _add_to_result(run, added)
    draw_page(run, lambda: ours if run.used == run else load_trained(run.used, data))


def _cross_validate(run: Run, ours: Trainer, progress: Progress | None) -> dict[str, Any]:
    """What cross-validation adds to the result; nothing if it cannot be done."""
    alone = run.labels_only.read_recipe() if run.labels_only.result.is_file() else None
    with StopRequest() as stop:

        def on_epoch(done: int, total: int) -> None:
            if progress is not None:
                if done == 1:
                    progress.on_start(0, total)
                progress.on_step(done)
            if stop.received:
                command = shlex.join(["dualstudent", "resume", str(run.folder)])
                raise Interrupted(stop.received, "a part of the cross-validation", command)

        try:
            found = compare_by_folds(ours.data, ours.recipe, alone, on_epoch)
        except LossNotFinite as error:
            warnings.warn(f"not cross-validated: {escape_line(error)}", stacklevel=3)
            found = None
    if found is None:
        return {"gain": None}
    added = {"on_features": asdict(found.comparison)}
    if alone is not None:
        errors = found.errors[ours.recipe.method.name], found.errors[LABELS_ALONE]
        added["gain"] = asdict(compute_gain("cross-validation", *errors))
    return added


def _add_to_result(run: Run, added: dict[str, Any]) -> None:
    run.write_result(run.read_result() | added)
