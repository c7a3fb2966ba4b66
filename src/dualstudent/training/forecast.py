"""Estimates how long a training will take on this machine."""

import math
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import torch

from dualstudent.data.prepared import PreparedData
from dualstudent.generators import make_generator, preserve_rng
from dualstudent.recipes.schema import Recipe
from dualstudent.training.evaluation import Evaluator
from dualstudent.training.inference import CHUNK
from dualstudent.training.trainer import Trainer

_SECONDS = 2.0  # duration of the measurement
_PART = 10  # short trainings are measured by so small a part of their steps
_BATCHES = 4  # of the end of an epoch
_LONG = 4.0  # if the first step takes so many seconds, its warm-up hardly matters


@dataclass(frozen=True)
class _Pace:
    """How long the parts of a stage take on this machine, in seconds, whatever its length."""

    step: float
    epoch_end: float
    evaluation: float
    steps_per_epoch: int

    def estimate(self, stage: Recipe) -> float:
        evaluations = math.ceil(stage.epochs / stage.evaluation.every)
        epoch = self.steps_per_epoch * self.step + self.epoch_end
        # All devices share the batches; only one evaluates.
        return stage.epochs * epoch / count_gpus(stage) + evaluations * self.evaluation


class Forecast:
    """How long trainings by a recipe take on this machine, as busy as it is now.

    Nothing is written, and the global random state is unchanged.

    Args:
        recipe: the recipe.
        data: the data to train on; a few steps, and parts of the ends of epochs, are taken on them.
    """

    def __init__(self, recipe: Recipe, data: PreparedData) -> None:
        self._paces = [_measure_pace(stage, data) for stage in recipe.split_stages()]

    def estimate(self, recipe: Recipe) -> float:
        """Estimate the seconds of a run by the recipe, or by the same one with other lengths."""
        stages = zip(self._paces, recipe.split_stages(), strict=True)
        return sum(pace.estimate(stage) for pace, stage in stages)


def estimate_seconds(recipe: Recipe, data: PreparedData) -> float:
    """Estimate the duration of a run in seconds from a few steps and parts of the ends of epochs.

    Nothing is written, and the global random state is unchanged.

    Args:
        recipe: recipe of the run.
        data: data of the run.
    """
    return Forecast(recipe, data).estimate(recipe)


def _measure_pace(stage: Recipe, data: PreparedData) -> _Pace:
    here = stage.model_copy(update={"device": stage.device.one_process})
    with preserve_rng(), closing(Trainer(here, data)) as trainer:
        return _Pace(
            measure_step(trainer, _SECONDS),
            measure_epoch_end(trainer, _SECONDS),
            measure_evaluation(trainer),
            trainer.schedule.steps_per_epoch,
        )


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
