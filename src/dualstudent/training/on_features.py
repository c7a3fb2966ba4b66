"""A run on the features of a trunk beside others that learn from the same features."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dualstudent.data.prepared import PreparedData
from dualstudent.data.samples import Samples
from dualstudent.training.gain import find_errors
from dualstudent.training.measured import Measured, MeasuredErrors, count_wrong
from dualstudent.training.trainer import Trainer
from dualstudent.trunks.baselines import BASELINES, choose_training, predict_baseline
from dualstudent.trunks.propagation import NeighborGraph


def compare_on_test(trainer: Trainer) -> MeasuredErrors:
    """Compare a trained run with the baselines on its test or validation part."""
    data, part = trainer.data, trainer.recipe.data.evaluated_part
    truth = data.test_labels.numpy()
    everything = torch.arange(len(truth))
    rows = {trainer.recipe.method.name: Measured.count(find_errors(trainer))}
    for name in BASELINES:
        answers = ask_baseline(name, data, data.test, everything, trainer.recipe.seed)
        rows[name] = Measured.count(count_wrong(answers, truth))
    return MeasuredErrors(part, len(truth), rows)


def ask_baseline(
    name: str, data: PreparedData, samples: Samples, asked: Tensor, seed: int
) -> NDArray[np.float64]:
    """Let a baseline learn from the features of ``data``; (n, C) class probabilities.

    Args:
        name: one of ``BASELINES``.
        data: with features as samples.
        samples: features to classify.
        asked: (n,) int64, which of them.
        seed: chooses the unlabeled images, if there are too many.
    """
    training = choose_training(data, seed)
    return predict_baseline(
        name,
        read_features(data.train, training),
        data.labels[training].numpy(),
        read_features(samples, asked),
        len(data.classes),
    )


def read_features(samples: Samples, indices: Tensor) -> NDArray[np.float32]:
    """Return the features (n, d) of clean samples."""
    (vectors,) = samples.make_views(indices, [None])
    return vectors.cpu().numpy()


def cross_validate_baselines(
    data: PreparedData, folds: NDArray[np.int64], seed: int
) -> dict[str, NDArray[np.float64]]:
    """Hide one part of the labels after the other, and let all baselines predict it.

    Args:
        data: with features as samples.
        folds: (n,) the part of each of ``data.labeled``, see
            :func:`~dualstudent.training.crossvalidation.divide_labels`.
        seed: chooses the unlabeled images, if there are too many.

    Returns:
        Baseline → (n, C) class probabilities, NaN for labels that are never hidden.
    """
    classes = len(data.classes)
    found = {name: np.full((len(folds), classes), np.nan) for name in BASELINES}
    if folds.max() < 0:
        return found
    training = choose_training(data, seed)  # the labeled images come first
    vectors, labels = read_features(data.train, training), data.labels[training].numpy()
    left_out = data.fully_labeled  # then hidden images are not there at all, as in a training
    # Of the same images, whatever is hidden.
    graph = None if left_out else NeighborGraph(vectors)
    for number in range(folds.max() + 1):
        hidden = np.flatnonzero(folds == number)
        known = labels.copy()
        known[hidden] = -1
        kept = known >= 0 if left_out else slice(None)
        for name, answers in found.items():
            answers[hidden] = predict_baseline(
                name, vectors[kept], known[kept], vectors[hidden], classes, graph
            )
    return found
