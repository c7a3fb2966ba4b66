"""Cross-validation over the labels: every label is hidden once, and then predicted."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dualstudent.atomic import atomic_write
from dualstudent.data.prepared import PreparedData
from dualstudent.errors import UserError
from dualstudent.generators import make_generator
from dualstudent.recipes.length import set_length
from dualstudent.recipes.schema import Recipe
from dualstudent.training.inference import Predictions, predict
from dualstudent.training.measured import Measured, MeasuredErrors, count_wrong
from dualstudent.training.on_features import cross_validate_baselines, read_features
from dualstudent.training.trainer import Trainer

LABELS_ALONE = "labels alone"  # name of the opponent
_PIECE = 1024  # images that are read at a time

Answer = Callable[[PreparedData, Tensor], NDArray[np.float64]]
"""Learns from data and returns the class probabilities (n, C) of n of its training samples."""


@dataclass(frozen=True)
class Plan:
    """How much of cross-validation there is time for.

    Attributes:
        parts: that the labels are divided into, at most.
        hidden: how many of these parts are hidden, one after the other.
        shorter: how many times as short as that of the run each training is.
    """

    parts: int
    hidden: int
    shorter: int


ON_FEATURES = Plan(5, 5, 2)  # in seconds; by half of it, heads have learned nearly all
_FROM_SCRATCH = Plan(3, 3, 3)  # as much as one more training
_TO_CHOOSE = Plan(3, 1, 3)  # where test images measure: a third of one


def plan_folds(recipe: Recipe, data: PreparedData) -> Plan:
    """Plan the cross-validation of a run."""
    if recipe.trunk is not None:
        return ON_FEATURES
    return _TO_CHOOSE if len(data.test_labels) else _FROM_SCRATCH


def shorten(recipe: Recipe, plan: Plan) -> Recipe:
    """Make the recipe of the short trainings; it stays as long if it does not allow another length.

    The warm-up stays as long, in steps, as far as that is no more than a quarter: it must not be
    shorter, or training may fail.
    """
    try:
        short = set_length(recipe, math.ceil(recipe.epochs / plan.shorter))
    except UserError:
        return recipe  # it has stages, or other settings that ask for its length
    warmup = min(recipe.schedule.warmup_epochs, short.epochs / 4)
    schedule = short.schedule.model_copy(update={"warmup_epochs": warmup})
    return short.model_copy(update={"schedule": schedule})


def split_folds(
    labels: Tensor, images: NDArray[np.int64], seed: int, parts: int = 5
) -> NDArray[np.int64]:
    """Divide labels into at most so many parts, each with its share of every class.

    The images of a class with fewer labels are all in different parts. Whatever part is hidden,
    a label of each class is left: a class with a single image is never hidden. Copies of an image
    are in the same part, as one would give the other away.

    Args:
        labels: (n,) int64, the class of each labeled sample.
        images: (n,) int64, equal numbers for copies of one image.
        seed: seed of the division.
        parts: their largest number.

    Returns:
        (n,) the part of each label, counted from 0; −1 if it is never hidden.

    Example:
        >>> split_folds(torch.tensor([0, 0, 1, 1, 1, 2]), np.arange(6), seed=0).tolist()
        [1, 0, 1, 2, 0, -1]
    """
    _, first, copy = np.unique(images, return_index=True, return_inverse=True)
    shuffled = torch.randperm(len(first), generator=make_generator(seed, "folds")).numpy()
    classes = labels.numpy()[first][shuffled]
    counts = np.bincount(classes)
    order = shuffled[np.argsort(classes, kind="stable")]
    order = order[counts[labels.numpy()[first][order]] > 1]
    folds = np.full(len(first), -1)
    folds[order] = np.arange(len(order)) % min(parts, max(1, counts.max()))
    return folds[copy]


def cross_validate(
    data: PreparedData, folds: NDArray[np.int64], answer: Answer
) -> NDArray[np.float64]:
    """Hide one part of the labels after the other, and let ``answer`` predict it from the others.

    Args:
        data: the data of a run.
        folds: (n,) the part of each of ``data.labeled``, see :func:`split_folds`.
        answer: learns from the data without these labels.

    Returns:
        (n, C) class probabilities, NaN for labels that are never hidden.
    """
    found = np.full((len(folds), len(data.classes)), np.nan)
    for number in range(folds.max() + 1):
        hidden = data.labeled[torch.from_numpy(folds == number)]
        found[folds == number] = answer(hide_labels(data, hidden), hidden)
    return found


def hide_labels(data: PreparedData, hidden: Tensor) -> PreparedData:
    """Hide the labels at ``hidden``; the images stay, without a label.

    If all images are labeled, they are left out instead: the methods then learn as before.
    """
    labels = data.labels.clone()
    labels[hidden] = -1
    labeled = data.labeled[~torch.isin(data.labeled, hidden)]
    added = hidden[~torch.isin(hidden, data.unlabeled)]  # data from Python may have them there
    unlabeled = labeled if data.fully_labeled else torch.cat([data.unlabeled, added])
    return replace(data, labels=labels, labeled=labeled, unlabeled=unlabeled)


def train_by(recipe: Recipe, on_step: Callable[[bool], None] = lambda ended: None) -> Answer:
    """Make an answer by training with a recipe.

    Args:
        recipe: of the training.
        on_step: called after every step, with whether an epoch has ended; may raise.
    """

    def answer(data: PreparedData, asked: Tensor) -> NDArray[np.float64]:
        trainer = Trainer(_fit_batch(recipe, data), data)
        try:
            while not trainer.done:
                on_step(trainer.advance() is not None)
            trainer.check_weights()
        finally:
            trainer.close()
        seed, device = recipe.seed, trainer.fabric.device
        found = Predictions.join(predict(trainer.method, data.train, asked, seed, device))
        return found.probabilities.double().numpy()

    return answer


def keep_answers(answer: Answer, name: str, file: Path, on_kept: Callable[[], None]) -> Answer:
    """Write down what is answered, so that it need not be learned again after an interruption.

    Args:
        answer: learns, which takes long.
        name: of what learns, as a file may hold the answers of several.
        file: JSON, kept in the folder of the run.
        on_kept: called when an answer was there already.
    """

    def find_or_answer(data: PreparedData, asked: Tensor) -> NDArray[np.float64]:
        known = _read_answers(file)
        key = f"{name}, labels hidden: {asked.tolist()}"
        kept = _to_array(known.get(key))
        if kept.shape == (len(asked), len(data.classes)):
            on_kept()
            return kept
        found = answer(data, asked)
        with atomic_write(file) as path:
            path.write_text(json.dumps(known | {key: found.tolist()}), "utf-8")
        return found

    return find_or_answer


def _read_answers(file: Path) -> dict[str, Any]:
    """What is kept; nothing if the file is damaged, as all of it can be answered again."""
    try:
        known = json.loads(file.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _to_array(answers: Any) -> NDArray[np.float64]:
    """Of shape () if these are no numbers, or rows of different lengths."""
    try:
        return np.array(answers, dtype=np.float64)
    except (TypeError, ValueError):
        return np.array(np.nan)


def _fit_batch(recipe: Recipe, data: PreparedData) -> Recipe:
    """Where all samples have a label, a batch must not be larger than what is left of them."""
    size = len(data.labeled)
    if not data.fully_labeled or recipe.batch.size <= size:
        return recipe
    batch = recipe.batch.model_copy(update={"size": size, "labeled": size})
    return recipe.model_copy(update={"batch": batch})


@dataclass(frozen=True)
class CrossValidation:
    """The errors that cross-validation found.

    Attributes:
        errors: name → (n,), 1 where the answer for a hidden label is wrong, else 0.
        parts: that were hidden, one after the other.
        never_hidden: classes with a single labeled image.
        epochs: of the first recipe.
    """

    errors: Mapping[str, NDArray[np.float64]]
    parts: int
    never_hidden: tuple[str, ...]
    epochs: int

    def measure(self, recipe: Recipe) -> MeasuredErrors:
        """The errors in percent, beside the training of full length by a recipe."""
        rows = {name: Measured.count(each) for name, each in self.errors.items()}
        images = len(next(iter(self.errors.values())))
        shorter = round(recipe.epochs / self.epochs)
        return MeasuredErrors(
            "cross-validation", images, rows, self.parts, shorter, self.never_hidden
        )


def compare_by_folds(
    data: PreparedData,
    recipes: Mapping[str, Recipe],
    plan: Plan,
    baselines: bool = False,
    on_step: Callable[[int, int], None] = lambda done, total: None,
    file: Path | None = None,
) -> CrossValidation | None:
    """Compare recipes on hidden labels.

    Args:
        data: the data of the run.
        recipes: name → recipe; see :func:`shorten`.
        plan: of the cross-validation.
        baselines: whether to compare them, too, on features of a trunk.
        on_step: is told after every step how many epochs of how many are done; may raise.
        file: to keep answers in, from which the same call continues; default: they are not kept.

    Returns:
        None if no class has two labeled images.
    """
    first = next(iter(recipes.values()))
    folds = divide_labels(data, first.seed, plan)
    single, parts = folds < 0, count_parts(folds, plan)
    if not parts:
        return None
    folds[folds >= parts] = -1  # there is no time for the others
    done, total = 0, parts * sum(each.epochs for each in recipes.values())

    def add(epochs: int) -> None:
        nonlocal done
        done += epochs
        on_step(done, total)

    add(0)
    found = {}
    for name, recipe in recipes.items():
        answer = train_by(recipe, add)
        if file is not None:
            answer = keep_answers(answer, name, file, partial(add, recipe.epochs))
        found[name] = cross_validate(data, folds, answer)
    if baselines:
        found |= cross_validate_baselines(data, folds, first.seed)
    truth, hidden = data.labels[data.labeled].numpy(), folds >= 0
    errors = {name: count_wrong(each[hidden], truth[hidden]) for name, each in found.items()}
    alone = sorted({data.classes[label] for label in truth[single]})
    return CrossValidation(errors, parts, tuple(alone), first.epochs)


def count_parts(folds: NDArray[np.int64], plan: Plan) -> int:
    """Count the parts that are hidden, of all that :func:`divide_labels` found."""
    return min(int(folds.max()) + 1, plan.hidden)


def divide_labels(data: PreparedData, seed: int, plan: Plan = ON_FEATURES) -> NDArray[np.int64]:
    """Divide the labels of a run for cross-validation, as :func:`split_folds` does.

    Labeled samples that are equal to the bit are copies of one.
    """
    digests = [
        hashlib.sha256(image.tobytes()).hexdigest()
        for piece in torch.split(data.labeled, _PIECE)
        for image in read_features(data.train, piece)
    ]
    _, copies = np.unique(np.array(digests), return_inverse=True)
    return split_folds(data.labels[data.labeled], copies, seed, plan.parts)
