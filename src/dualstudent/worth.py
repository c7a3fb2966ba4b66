"""Was it worth it? The same network on the labels alone, and what unlabeled images gained."""

import math
import shlex
import warnings
from collections.abc import Sequence
from dataclasses import asdict

from dualstudent.batch import count_epoch_steps
from dualstudent.data.prepared import PreparedData
from dualstudent.errors import escape_line
from dualstudent.methods.supervised import SupervisedSettings
from dualstudent.optimization.schedules import CosineSchedule
from dualstudent.recipes.schema import EMASettings, Recipe
from dualstudent.runs import draw_page, resume
from dualstudent.signals import Interrupted
from dualstudent.training.callbacks import Callback
from dualstudent.training.gain import measure_gain
from dualstudent.training.model import load_trained
from dualstudent.training.run import Run
from dualstudent.training.trainer import LossNotFinite


def learns_from_unlabeled(recipe: Recipe, data: PreparedData) -> bool:
    """Return whether a run learns from images without a label."""
    return recipe.method.name != "supervised" and not data.fully_labeled


def can_measure(recipe: Recipe, data: PreparedData) -> bool:
    """Return whether there are images to compare two runs on.

    Held-out images of the source do not count: they say nothing about the target.
    """
    return len(data.test_labels) > 0 and recipe.data.evaluated_part != "source validation"


def make_opponent(recipe: Recipe, data: PreparedData) -> Recipe | None:
    """Make the recipe of an honest opponent, which learns from the labels alone.

    It has the same network, data, views and optimizer, and batches of the same size, which hold
    labeled images only. It learns from strong views, for half as many steps, with a learning rate
    that comes down to 0, and evaluates an average of the weights over about the last tenth.

    Returns:
        The recipe; None if all images have labels, if the recipe has stages, or if there is
        nothing to measure by.
    """
    if not (learns_from_unlabeled(recipe, data) and can_measure(recipe, data)) or recipe.stages:
        return None
    method = SupervisedSettings(
        view="strong" if data.train.has_strong_views else "weak",
        label_smoothing=recipe.method.label_smoothing,
        confidence_threshold=recipe.method.confidence_threshold,
    )
    schedule = CosineSchedule(
        epochs=math.ceil(recipe.epochs / 2),
        warmup_epochs=recipe.schedule.warmup_epochs / 2,
        warmup_from=recipe.schedule.warmup_from,
    )
    batch = recipe.batch
    per_epoch = count_epoch_steps(len(data.labeled), len(data.unlabeled), batch.size, batch.labeled)
    steps = schedule.epochs * max(1, per_epoch)  # training refuses a batch that cannot be filled
    ema = recipe.ema or EMASettings(decay=min(0.999, steps / (steps + 10)))
    return recipe.model_copy(update={"method": method, "schedule": schedule, "ema": ema})


def awaits_comparison(run: Run) -> bool:
    """Return whether a finished run has an opponent that it was not compared with yet."""
    return run.labels_only.about.is_file() and "gain" not in run.read_result()


def compare_with_labels(
    run: Run, callbacks: Callback | Sequence[Callback] = (), data: PreparedData | None = None
) -> None:
    """Train the opponent of a finished run to its end; write what the unlabeled images gained.

    Adds ``gain`` to the result of the run and draws its page again. Does nothing if the run has
    no opponent, or was compared already.

    Args:
        run: a finished run.
        callbacks: receive the progress of the opponent.
        data: the data that :func:`~dualstudent.train` was given, if any.

    Raises:
        UserError: if the data have changed.
        Interrupted: after Ctrl-C, SIGTERM or SIGHUP; the same call continues.
    """
    if not awaits_comparison(run):
        return
    try:
        resume(run.labels_only.folder, callbacks, data)
    except Interrupted as stop:
        command = shlex.join(["dualstudent", "resume", str(run.folder)])
        raise Interrupted(stop.number, f"{stop.done} on labels alone", command) from stop
    except LossNotFinite as error:
        warnings.warn(f"not compared with labels alone: {escape_line(error)}", stacklevel=2)
        return
    ours, labels_only = (load_trained(each, data) for each in (run, run.labels_only))
    gain = measure_gain(ours, labels_only)
    run.write_result(run.read_result() | {"gain": asdict(gain)})
    draw_page(run, lambda: labels_only if gain.labels_only_used else ours)
