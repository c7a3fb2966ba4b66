"""Estimates how long runs take on this machine, from a few measured steps."""

import math
from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass

import torch

from dualstudent.batch import count_epoch_steps
from dualstudent.data.batching.loader import BatchSettings
from dualstudent.data.prepared import PreparedData
from dualstudent.data.samples import ImageSamples
from dualstudent.data.sources.catalog import SOURCES
from dualstudent.data.sources.source import Source
from dualstudent.data.splits import count_labeled
from dualstudent.grid import count_parallel_runs
from dualstudent.recipes.schema import Recipe
from dualstudent.training.forecast import (
    count_gpus,
    measure_evaluation,
    measure_step,
)
from dualstudent.training.trainer import Trainer

_SMALLEST_BATCH = 4
_MIN_SECONDS = 0.5  # of a measured step


def count_steps(recipe: Recipe) -> int:
    """Number of training steps of a run on published data.

    Example:
        >>> from dualstudent import load_recipe
        >>> count_steps(load_recipe("cifar10")) // 300
        980
    """
    labels, batch = _count_labels(recipe), recipe.batch
    unlabeled = _count_samples(recipe) - labels
    if recipe.data.target is not None:
        unlabeled = SOURCES[recipe.data.target].train
    return recipe.epochs * count_epoch_steps(labels, unlabeled, batch.size, batch.labeled)


@dataclass(frozen=True)
class Pace:
    """Speed of this machine with a method and its networks, in seconds per image.

    Attributes:
        training: for one step.
        test: for one evaluation by all networks.
    """

    training: float
    test: float


class TimeEstimator:
    """Estimates the time of runs; measures each method, networks and image size once."""

    def __init__(self) -> None:
        self._paces: dict[tuple[object, ...], Pace] = {}

    def estimate(self, recipe: Recipe) -> float:
        """Seconds that a run takes on one core, or on the GPUs that share its batches."""
        return sum(self._estimate_stage(stage) for stage in recipe.split_stages())

    def _estimate_stage(self, recipe: Recipe) -> float:
        pace = self._find_pace(recipe)
        tests = math.ceil(recipe.epochs / recipe.evaluation.every)
        tested = tests * 2 * _count_test_samples(recipe)  # each image clean and perturbed
        training = count_steps(recipe) * recipe.batch.size * pace.training / count_gpus(recipe)
        return training + tested * pace.test  # one process tests

    def _find_pace(self, recipe: Recipe) -> Pace:
        networks = recipe.method.networks(recipe.network)
        key = (recipe.method.name, *networks, _find_shape(recipe), _choose_device(recipe))
        if key not in self._paces:
            threads = torch.get_num_threads()
            torch.set_num_threads(1)
            try:
                self._paces[key] = measure_pace(recipe)
            finally:
                torch.set_num_threads(threads)
        return self._paces[key]


def measure_pace(recipe: Recipe) -> Pace:
    """Measure steps on black images, in larger and larger batches until one takes 0.5 s."""
    size = min(_SMALLEST_BATCH, recipe.batch.size)
    while True:
        labeled = max(1, size * recipe.batch.labeled // recipe.batch.size)
        batch = BatchSettings(size=size, labeled=labeled)
        small = recipe.model_copy(update={"batch": batch, "device": recipe.device.one_process})
        with closing(Trainer(small, _make_black_images(recipe, batch))) as trainer:
            seconds = measure_step(trainer, seconds=0.0)
            if seconds > _MIN_SECONDS or size == recipe.batch.size:
                tested = 2 * size  # each image clean and perturbed
                return Pace(seconds / size, measure_evaluation(trainer) / tested)
        size = min(2 * size, recipe.batch.size)


def estimate_wall_clock(recipes: Collection[Recipe], estimator: TimeEstimator) -> float:
    """Seconds for all runs: one run per core, or one after the other on GPUs."""
    on_gpus = [recipe for recipe in recipes if recipe.device.gpu]
    on_cores = [recipe for recipe in recipes if not recipe.device.gpu]
    return sum(_estimate_kind(kind, estimator) for kind in (on_gpus, on_cores))


def _estimate_kind(recipes: Collection[Recipe], estimator: TimeEstimator) -> float:
    seconds = [estimator.estimate(recipe) for recipe in recipes]
    return max(sum(seconds) / count_parallel_runs(recipes), max(seconds, default=0.0))


def _make_black_images(recipe: Recipe, batch: BatchSettings) -> PreparedData:
    """One batch of black images, with the classes and shape of the data."""
    black = torch.zeros(batch.size, *_find_shape(recipe), dtype=torch.uint8)
    images = ImageSamples(black, recipe.transforms, recipe.normalization)
    classes = tuple(map(str, range(_count_classes(recipe))))
    truth = torch.arange(batch.size) % len(classes)
    labels = truth.clone()
    labels[batch.labeled :] = -1
    labeled = torch.arange(batch.labeled)
    unlabeled = torch.arange(batch.labeled, batch.size)
    rest = unlabeled if len(unlabeled) else labeled
    is_target = None if recipe.data.target is None else labels < 0
    return PreparedData(classes, images, labels, labeled, rest, images, truth, is_target=is_target)


def _choose_device(recipe: Recipe) -> str:
    return recipe.device.gpu or "cpu"


def _find_source(name: str | None) -> Source:
    assert name is not None  # the experiments name their data
    return SOURCES[name]


def _count_samples(recipe: Recipe) -> int:
    published = _find_source(recipe.data.source)
    return recipe.data.images or published.train * _count_classes(recipe) // published.classes


def _count_labels(recipe: Recipe) -> int:
    return count_labeled(recipe.data.labels, _count_samples(recipe), _count_classes(recipe))


def _count_test_samples(recipe: Recipe) -> int:
    published = _find_source(recipe.data.target or recipe.data.source)
    return published.test * _count_classes(recipe) // published.classes


def _count_classes(recipe: Recipe) -> int:
    chosen = recipe.data.classes
    return _find_source(recipe.data.source).classes if chosen is None else len(chosen)


def _find_shape(recipe: Recipe) -> tuple[int, int, int]:
    channels, _, published = _find_source(recipe.data.source).shape
    size = recipe.data.image_size or published
    return channels, size, size
