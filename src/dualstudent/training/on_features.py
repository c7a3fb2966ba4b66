"""A run on the features of a trunk beside others that learn from the same features."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dualstudent.data.prepared import PreparedData
from dualstudent.data.samples import Samples
from dualstudent.recipes.schema import Recipe
from dualstudent.training.crossvalidation import cross_validate, split_folds, train_by
from dualstudent.training.gain import find_errors
from dualstudent.training.trainer import Trainer
from dualstudent.trunks.baselines import BASELINES, choose_training, predict_baseline
from dualstudent.trunks.propagation import NeighborGraph

LABELS_ALONE = "labels alone"
SHORTER = 2  # half of the training: by then, heads on features have learned nearly all
_QUANTILE = 1.96  # of the normal distribution, for 95 %


@dataclass(frozen=True)
class Measured:
    """An error in percent with its 95 % interval."""

    error: float
    interval: tuple[float, float]

    @classmethod
    def count(cls, errors: NDArray[np.float64]) -> "Measured":
        """Measure errors (n,) in [0, 1] of n images."""
        low, high = find_interval(float(errors.mean()), len(errors))
        return cls(100 * float(errors.mean()), (100 * low, 100 * high))


@dataclass(frozen=True)
class FeatureComparison:
    """Errors of a run and of others on the same features.

    Attributes:
        part: the images that all were measured on: a part of the data, or the labels, each of
            which was hidden once (cross-validation).
        images: their number.
        rows: name → error; first the method of the run, last the baselines.
        folds: parts that the labels were divided into; 0 without cross-validation.
        never_hidden: classes with a single labeled image, which nothing is known about.
    """

    part: Literal["test", "validation", "source validation", "cross-validation"]
    images: int
    rows: Mapping[str, Measured]
    folds: int = 0
    never_hidden: Sequence[str] = ()

    def describe(self) -> list[str]:
        """Say in plain sentences what was measured, and how."""
        if not self.folds:
            return [
                f"On the same features and {self.images:,} {self.part} images, in percent, with "
                "95 % intervals (Wilson)."
            ]
        sentences = [
            f"Cross-validation: each of {self.images:,} labels was hidden once, in {self.folds} "
            "parts, and predicted from the others and all images, by short trainings; in percent, "
            "with 95 % intervals (Wilson)."
        ]
        if self.never_hidden:
            sentences.append(
                f"Not measured, as they have a single labeled image: {', '.join(self.never_hidden)}"
                "."
            )
        return sentences


def read_comparison(result: Mapping[str, Any]) -> FeatureComparison | None:
    """Return the comparison that the result of a run holds; None if there is none."""
    found = result.get("on_features")
    if found is None:
        return None
    rows = {name: Measured(**each) for name, each in found["rows"].items()}
    return FeatureComparison(**found | {"rows": rows})


def compare_on_test(trainer: Trainer) -> FeatureComparison:
    """Compare a trained run with the baselines on its test or validation part."""
    data, part = trainer.data, trainer.recipe.data.evaluated_part
    truth = data.test_labels.numpy()
    everything = torch.arange(len(truth))
    rows = {trainer.recipe.method.name: Measured.count(find_errors(trainer))}
    for name in BASELINES:
        answers = ask_baseline(name, data, data.test, everything, trainer.recipe.seed)
        rows[name] = Measured.count(_count_wrong(answers, truth))
    return FeatureComparison(part, len(truth), rows)


@dataclass(frozen=True)
class CrossValidation:
    """The errors that cross-validation found.

    Attributes:
        comparison: the errors in percent.
        errors: name → (n,), 1 where the answer for a hidden label is wrong, else 0.
    """

    comparison: FeatureComparison
    errors: Mapping[str, NDArray[np.float64]]


def compare_by_folds(
    data: PreparedData,
    recipe: Recipe,
    opponent: Recipe | None = None,
    on_epoch: Callable[[int, int], None] = lambda done, total: None,
) -> CrossValidation | None:
    """Compare a recipe, another one for the labels alone, and the baselines by cross-validation.

    Args:
        data: the data of the run, features of a trunk.
        recipe: of the run.
        opponent: learns from the labels alone.
        on_epoch: is told how many epochs of how many are done; may raise.

    Returns:
        None if no class has two labeled images.
    """
    folds = divide_labels(data, recipe.seed)
    if folds.max() < 0:
        return None
    count, hidden = int(folds.max()) + 1, folds >= 0
    done = total = 0

    def on_each_epoch() -> None:
        nonlocal done
        done += 1
        on_epoch(done, total)

    recipes = {recipe.method.name: recipe} | ({LABELS_ALONE: opponent} if opponent else {})
    answers = {}
    for name, each in recipes.items():
        answers[name], epochs = train_by(each, math.ceil(each.epochs / SHORTER), on_each_epoch)
        total += count * epochs
    truth = data.labels[data.labeled].numpy()
    found = {name: cross_validate(data, folds, answer) for name, answer in answers.items()}
    found |= cross_validate_baselines(data, folds, recipe.seed)
    errors = {name: _count_wrong(each[hidden], truth[hidden]) for name, each in found.items()}
    rows = {name: Measured.count(each) for name, each in errors.items()}
    alone = sorted({data.classes[label] for label in truth[~hidden]})
    part = FeatureComparison("cross-validation", int(hidden.sum()), rows, count, tuple(alone))
    return CrossValidation(part, errors)


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


def find_interval(share: float, count: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share that was found in ``count`` images.

    (p + z²/2n ± z √(p (1 − p)/n + z²/4n²)) / (1 + z²/n) with z = 1.96.

    Example:
        >>> [round(end, 3) for end in find_interval(0.0, 20)]
        [0.0, 0.161]
    """
    z = _QUANTILE**2 / count
    half = math.sqrt(z * share * (1 - share) + z**2 / 4)
    low, high = ((share + z / 2 + sign * half) / (1 + z) for sign in (-1, 1))
    return max(0.0, low), min(1.0, high)


def cross_validate_baselines(
    data: PreparedData, folds: NDArray[np.int64], seed: int
) -> dict[str, NDArray[np.float64]]:
    """Hide one part of the labels after the other, and let all baselines predict it.

    Args:
        data: with features as samples.
        folds: (n,) the part of each of ``data.labeled``, see :func:`divide_labels`.
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


def divide_labels(data: PreparedData, seed: int) -> NDArray[np.int64]:
    """Divide the labels for cross-validation; labeled images with equal features are copies."""
    vectors = read_features(data.train, data.labeled)
    _, group = np.unique(vectors, axis=0, return_inverse=True)
    return split_folds(data.labels[data.labeled], group.reshape(-1), seed)


def _count_wrong(
    probabilities: NDArray[np.float64], truth: NDArray[np.int64]
) -> NDArray[np.float64]:
    wrong: NDArray[np.float64] = (probabilities.argmax(axis=1) != truth).astype(np.float64)
    return wrong
