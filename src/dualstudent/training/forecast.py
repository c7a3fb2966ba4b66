"""How long a training will take on this machine, from a few of its own steps."""

import math
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial

import torch

from dualstudent.data.prepared import PreparedData
from dualstudent.recipes.schema import DeviceSettings, Recipe
from dualstudent.training.evaluation import Evaluator
from dualstudent.training.inference import CHUNK
from dualstudent.training.trainer import Trainer

_SECONDS = 2.0  # of measuring: the mean over many steps, where steps are short
_LONG = 4.0  # seconds of a first step that is not much slower than the others


def estimate_seconds(recipe: Recipe, data: PreparedData) -> float:
    """About how long a run takes: real steps and a part of a real evaluation, times their number.

    Nothing is kept of it, and the caller's random numbers go on as if it had not been.

    Args:
        recipe: of the run.
        data: what it learns from.
    """
    here = recipe.model_copy(update={"device": use_one_process(recipe.device)})
    with torch.random.fork_rng(devices=[]), closing(Trainer(here, data)) as trainer:
        steps = trainer.total_steps * measure_step(trainer, _SECONDS)
        evaluations = math.ceil(recipe.epochs / recipe.evaluation.every)
        # All devices share the steps; one of them evaluates.
        return steps / count_gpus(recipe) + evaluations * measure_evaluation(trainer)


def measure_step(trainer: Trainer, seconds: float) -> float:
    """The time of a step, in seconds: the mean over some, after a first one, which is slower.

    Args:
        trainer: takes the steps.
        seconds: how long to measure; but one step at least, and no more than the training has.
    """
    trainer.method.train()
    first = _measure(partial(trainer.take_step, 0))
    if first > _LONG:
        return first
    total, spent, done = trainer.total_steps, 0.0, 0
    while done == 0 or (done < total and spent < seconds):
        done += 1
        spent += _measure(partial(trainer.take_step, done % total))
    return spent / done


def measure_evaluation(trainer: Trainer) -> float:
    """The time of an evaluation, in seconds, from one of the first test samples."""
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


def use_one_process(device: DeviceSettings) -> DeviceSettings:
    """The same device without others that share the batches."""
    return device.model_copy(update={"processes": 1})


def count_gpus(recipe: Recipe) -> int:
    """How many share the batches of a run; 1 also where there are none."""
    there = torch.cuda.device_count() if recipe.device.gpu == "cuda" else 1
    return min(recipe.device.processes, there)


def _measure(work: Callable[[], object]) -> float:
    """How long ``work`` takes, also on a GPU, which is asked to finish it."""
    started = time.perf_counter()
    work()
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    return time.perf_counter() - started
