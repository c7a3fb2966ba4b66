"""Cross-validation over the labels: every label is hidden once, and then predicted."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dualstudent.data.prepared import PreparedData
from dualstudent.errors import UserError
from dualstudent.generators import make_generator
from dualstudent.recipes.length import set_length
from dualstudent.recipes.schema import Recipe
from dualstudent.training.inference import Predictions, predict
from dualstudent.training.trainer import Trainer

MOST_FOLDS = 5

Answer = Callable[[PreparedData, Tensor], NDArray[np.float64]]
"""Learns from data and returns the class probabilities (n, C) of n of its training samples."""


def split_folds(labels: Tensor, images: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Divide labels into at most five parts, each with its share of every class.

    The images of a class with fewer labels are all in different parts. Whatever part is hidden,
    a label of each class is left: a class with a single image is never hidden. Copies of an image
    are in the same part, as one would give the other away.

    Args:
        labels: (n,) int64, the class of each labeled sample.
        images: (n,) int64, equal numbers for copies of one image.
        seed: seed of the division.

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
    folds[order] = np.arange(len(order)) % min(MOST_FOLDS, max(1, counts.max()))
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


def train_by(
    recipe: Recipe, epochs: int, on_epoch: Callable[[], None] = lambda: None
) -> tuple[Answer, int]:
    """Make an answer by training with a recipe, for fewer epochs if it allows that.

    Args:
        recipe: the recipe of a run.
        epochs: that suffice.
        on_epoch: called after every epoch; may raise.

    Returns:
        The answer, and how many epochs it trains.
    """
    shorter = _shorten(recipe, epochs)

    def answer(data: PreparedData, asked: Tensor) -> NDArray[np.float64]:
        trainer = Trainer(_fit_batch(shorter, data), data)
        try:
            while not trainer.done:
                if trainer.advance() is not None:
                    on_epoch()
            trainer.check_weights()
        finally:
            trainer.close()
        seed, device = recipe.seed, trainer.fabric.device
        found = Predictions.join(predict(trainer.method, data.train, asked, seed, device))
        return found.probabilities.double().numpy()

    return answer, shorter.epochs


def _shorten(recipe: Recipe, epochs: int) -> Recipe:
    try:
        return set_length(recipe, min(epochs, recipe.epochs))
    except UserError:
        return recipe  # it has stages, or other settings that ask for its length


def _fit_batch(recipe: Recipe, data: PreparedData) -> Recipe:
    """Where all samples have a label, a batch must not be larger than what is left of them."""
    size = len(data.labeled)
    if not data.fully_labeled or recipe.batch.size <= size:
        return recipe
    batch = recipe.batch.model_copy(update={"size": size, "labeled": size})
    return recipe.model_copy(update={"batch": batch})
