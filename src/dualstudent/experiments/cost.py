"""What runs will cost on this machine: steps counted, the time of one measured."""

import math
from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass

import torch

from dualstudent.data.batching.loader import BatchSettings
from dualstudent.data.prepared import PreparedData
from dualstudent.data.samples import ImageSamples
from dualstudent.data.sources.catalog import SOURCES
from dualstudent.data.sources.source import Source
from dualstudent.data.splits import share_of
from dualstudent.grid import runs_at_a_time
from dualstudent.recipes.schema import Recipe
from dualstudent.training.forecast import (
    count_gpus,
    measure_evaluation,
    measure_step,
    run_alone,
)
from dualstudent.training.trainer import Trainer

_SMALLEST_BATCH = 4
_LONG_ENOUGH = 0.5  # seconds; then a batch is large enough to conclude from


def steps_of(recipe: Recipe) -> int:
    """How many steps a run takes on the published data.

    Example:
        >>> from dualstudent import load_recipe
        >>> steps_of(load_recipe("cifar10")) // 300
        980
    """
    batch, samples, labels = recipe.batch, _samples(recipe), _labels(recipe)
    unlabeled = max(batch.size - batch.labeled, 1)  # a batch without any is refused by training
    if recipe.data.target is not None:
        per_epoch = SOURCES[recipe.data.target].train // unlabeled
    elif labels == samples:
        per_epoch = samples // batch.size
    else:
        per_epoch = (samples - labels) // unlabeled
    return recipe.schedule.epochs * per_epoch


@dataclass(frozen=True)
class Pace:
    """How fast a machine is with some networks and a method, in seconds an image.

    Attributes:
        training: all passes of a step and the update.
        test: one look by all networks.
    """

    training: float
    test: float


class Stopwatch:
    """Measures each combination of networks, method and image size once, with one thread."""

    def __init__(self) -> None:
        self._paces: dict[tuple[object, ...], Pace] = {}

    def seconds(self, recipe: Recipe) -> float:
        """About how long a run takes, on one core or on the GPUs that share its batches."""
        pace = self._pace(recipe)
        tests = math.ceil(recipe.schedule.epochs / recipe.evaluation.every)
        looks = tests * 2 * _tested(recipe)  # each image clean and perturbed
        training = steps_of(recipe) * recipe.batch.size * pace.training / count_gpus(recipe)
        return training + looks * pace.test  # one process tests

    def _pace(self, recipe: Recipe) -> Pace:
        networks = recipe.method.networks(recipe.network)
        key = (recipe.method.name, *networks, _shape(recipe), _device(recipe))
        if key not in self._paces:
            threads = torch.get_num_threads()
            torch.set_num_threads(1)
            try:
                self._paces[key] = measure_pace(recipe)
            finally:
                torch.set_num_threads(threads)
        return self._paces[key]


def measure_pace(recipe: Recipe) -> Pace:
    """Take steps on black images, in ever larger batches until one takes long enough."""
    size = min(_SMALLEST_BATCH, recipe.batch.size)
    while True:
        labeled = max(1, size * recipe.batch.labeled // recipe.batch.size)
        batch = BatchSettings(size=size, labeled=labeled)
        small = recipe.model_copy(update={"batch": batch, "device": run_alone(recipe.device)})
        with closing(Trainer(small, _stand_in(recipe, batch))) as trainer:
            seconds = measure_step(trainer, seconds=0.0)
            if seconds > _LONG_ENOUGH or size == recipe.batch.size:
                looks = 2 * size  # each image clean and perturbed
                return Pace(seconds / size, measure_evaluation(trainer) / looks)
        size = min(2 * size, recipe.batch.size)


def wall_clock(recipes: Collection[Recipe], stopwatch: Stopwatch) -> float:
    """Of runs that share the cores, a run each, or that have the GPU one after the other."""
    on_gpus = [recipe for recipe in recipes if recipe.device.gpu]
    on_cores = [recipe for recipe in recipes if not recipe.device.gpu]
    return sum(_together(kind, stopwatch) for kind in (on_gpus, on_cores))


def _together(recipes: Collection[Recipe], stopwatch: Stopwatch) -> float:
    of_runs = [stopwatch.seconds(recipe) for recipe in recipes]
    return max(sum(of_runs) / runs_at_a_time(recipes), max(of_runs, default=0.0))


def _stand_in(recipe: Recipe, batch: BatchSettings) -> PreparedData:
    """Data of the right shape and number of classes, of which a batch is all there is."""
    black = torch.zeros(batch.size, *_shape(recipe), dtype=torch.uint8)
    images = ImageSamples(black, recipe.transforms, recipe.normalization)
    classes = tuple(map(str, range(_classes(recipe))))
    truth = torch.arange(batch.size) % len(classes)
    labels = truth.clone()
    labels[batch.labeled :] = -1
    labeled = torch.arange(batch.labeled)
    unlabeled = torch.arange(batch.labeled, batch.size)
    rest = unlabeled if len(unlabeled) else labeled
    return PreparedData(classes, images, labels, labeled, rest, images, truth)


def _device(recipe: Recipe) -> str:
    return recipe.device.gpu or "cpu"


def _published(name: str | None) -> Source:
    assert name is not None  # the experiments name their data
    return SOURCES[name]


def _samples(recipe: Recipe) -> int:
    published = _published(recipe.data.source)
    return recipe.data.images or published.train * _classes(recipe) // published.classes


def _labels(recipe: Recipe) -> int:
    labels, samples, classes = recipe.data.labels, _samples(recipe), _classes(recipe)
    if isinstance(labels, int):
        return labels
    return samples if labels == "all" else int(samples * share_of(labels) / classes) * classes


def _tested(recipe: Recipe) -> int:
    published = _published(recipe.data.target or recipe.data.source)
    return published.test * _classes(recipe) // published.classes


def _classes(recipe: Recipe) -> int:
    chosen = recipe.data.classes
    return _published(recipe.data.source).classes if chosen is None else len(chosen)


def _shape(recipe: Recipe) -> tuple[int, int, int]:
    channels, _, published = _published(recipe.data.source).shape
    size = recipe.data.image_size or published
    return channels, size, size
