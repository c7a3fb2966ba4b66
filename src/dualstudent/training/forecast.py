"""Estimates how long a training will take on this machine."""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial

import torch

from dualstudent.data.prepared import PreparedData
from dualstudent.errors import UserError
from dualstudent.generators import make_generator, preserve_rng
from dualstudent.recipes.schema import Recipe
from dualstudent.training.evaluation import Evaluator
from dualstudent.training.inference import CHUNK
from dualstudent.training.trainer import Trainer

_SECONDS = 2.0  # duration of the measurement
_PART = 10  # short trainings are measured by so small a part of their steps
_BATCHES = 4  # of the end of an epoch
_LONG = 4.0  # if the first step takes so many seconds, its warm-up hardly matters


def estimate_seconds(recipe: Recipe, data: PreparedData) -> float:
    """Estimate the duration of a run in seconds from a few steps and parts of the ends of epochs.

    Nothing is written, and the global random state is unchanged.

    Args:
        recipe: recipe of the run.
        data: data of the run.
    """
    return sum(_estimate_stage(stage, data) for stage in recipe.split_stages())


def fit_epochs(
    recipe: Recipe,
    data: PreparedData,
    seconds: float,
    others: Sequence[Recipe] = (),
    trainings: float = 1.0,
) -> int:
    """Find how many epochs of a recipe fit into ``seconds`` on this machine, by its own steps.

    Args:
        recipe: recipe of the run; its own number of epochs does not matter.
        data: data of the run.
        seconds: time for training and evaluation; what the features have left of a budget.
        others: recipes of runs that have to fit into the same time, perhaps the same again; their
            lengths stay in proportion.
        trainings: how many trainings of this length have to fit, as cross-validation repeats them.

    Raises:
        UserError: if nothing is left, not even one epoch fits, or the recipe has stages with their
            own lengths.
    """
    if seconds <= 0:
        raise UserError(
            "nothing of the budget is left for the training; features of images are kept, so try "
            "once more, or give more time"
        )
    if recipe.stages:
        raise UserError("a budget is for recipes without stages; set the epochs of each stage")
    own = estimate_seconds(recipe, data)
    rest = sum(own if one is recipe else estimate_seconds(one, data) for one in others)
    each = trainings * (own + rest) / recipe.epochs
    if each > seconds:
        raise UserError(
            f"the budget, of which {seconds:,.0f} s are left, is too short for one epoch, which "
            f"takes about {math.ceil(each):,} s here; give more time"
        )
    return int(seconds / each)


def _estimate_stage(recipe: Recipe, data: PreparedData) -> float:
    here = recipe.model_copy(update={"device": recipe.device.one_process})
    with preserve_rng(), closing(Trainer(here, data)) as trainer:
        steps = trainer.total_steps * measure_step(trainer, _SECONDS)
        ends = recipe.epochs * measure_epoch_end(trainer, _SECONDS)
        evaluations = math.ceil(recipe.epochs / recipe.evaluation.every)
        # All devices share the batches; only one evaluates.
        return (steps + ends) / count_gpus(recipe) + evaluations * measure_evaluation(trainer)


def measure_step(trainer: Trainer, seconds: float) -> float:
    """Measure the mean duration of a step in seconds, without the first one, which is slower.

    Args:
        trainer: takes the steps.
        seconds: how long to measure; at least one step, at most a tenth of the training.
    """
    trainer.method.train()
    first = _measure(partial(trainer.take_step, 0))
    if first > _LONG:
        return first
    total, spent, done = trainer.total_steps, 0.0, 0
    while done == 0 or (done < total / _PART and spent < seconds):
        done += 1
        spent += _measure(partial(trainer.take_step, done % total))
    return spent / done


def measure_epoch_end(trainer: Trainer, seconds: float) -> float:
    """Estimate how long the method takes at the end of an epoch, on average, in seconds.

    Most methods do nothing there, but FastSWA goes over every few epochs once more. So this takes
    epochs at random, and the first batches of those that are gone over.

    Args:
        trainer: its method ends the epochs.
        seconds: how long to measure; at least one epoch, at most all of the training.
    """
    epochs, length = trainer.schedule.settings.epochs, trainer.schedule.steps_per_epoch
    count = min(_BATCHES, length)
    order = torch.randperm(epochs, generator=make_generator("ends of epochs")).tolist()
    spent, total, done = 0.0, 0.0, 0
    while done < epochs and (done == 0 or spent < seconds):
        steps = iter(range(count))
        took = _measure(partial(trainer.end_epoch, order[done], steps))
        gone_over = next(steps, None) is None
        total += took * length / count if gone_over else took
        spent += took
        done += 1
    return total / done


def measure_evaluation(trainer: Trainer) -> float:
    """Estimate the duration of an evaluation in seconds from the first test samples."""
    data, method = trainer.data, trainer.method
    some = data.test_labels[:CHUNK]
    if len(some) == 0:
        return 0.0
    evaluator = Evaluator(
        data.test,
        some,
        method.confidence_threshold,
        trainer.recipe.seed,
        device=trainer.fabric.device,
    )
    seconds = _measure(partial(evaluator.evaluate, method.evaluated))
    return seconds * len(data.test_labels) / len(some)


def count_gpus(recipe: Recipe) -> int:
    """Count the GPUs that share the batches of a run; 1 if there is none."""
    there = torch.cuda.device_count() if recipe.device.gpu == "cuda" else 1
    return min(recipe.device.processes, there)


def _measure(work: Callable[[], object]) -> float:
    """Return the duration of ``work`` in seconds, including pending GPU work."""
    started = time.perf_counter()
    work()
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    return time.perf_counter() - started
