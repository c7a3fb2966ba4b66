"""How many of the unlabeled images are of each class? Estimated from a few labels, in seconds.

Lipton, Wang and Smola, "Detecting and correcting for label shift with black box predictors" (ICML
2018): a classifier that is wrong in known ways still counts well. With C_kc the mean probability of
class c for images of class k whose labels were hidden, and q_c that for unlabeled images, the
shares w solve Cᵀw = q. As both are measured on few images, they are drawn a little to even shares:

    w = argmin |Cᵀw − q|² + λ s |w − 1/K|²,   negative shares become 0, and their sum 1

with s the mean squared distance of a row of C from the mean row, 1 − 1/K for a classifier that is
never wrong, so that the penalty does not hide how little a poor one tells.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

from dualstudent.generators import derive_seed, make_generator
from dualstudent.trunks.patches import AT_ONCE, compute_patch_features
from dualstudent.trunks.propagation import Labels, Probabilities, Vectors

_FEWEST_LABELS = 8  # of each class; fewer do not tell in which ways a classifier is wrong
_FEWEST_UNLABELED, _MOST_CLASSES = 100, 100
_MOST = 1000  # unlabeled images, and as many labeled ones, that are looked at
_PENALTY, _TINY = 0.02, 1e-9  # λ, and what keeps equal rows of C solvable
_INVERSE_PENALTY = 1.0  # of logistic regression, on vectors whose values have a deviation of 1
_FOLDS, _DRAWS = 5, 200
_SURE = 0.18  # usual distance by chance up to which shares are trusted
_CHANCE = 0.99  # share of all draws that are nearer than what cannot be chance
_FURTHEST = 0.2  # distance from even shares that nobody takes for them, even if it may be chance
_LEAST = 0.001  # no class is ruled out


@dataclass(frozen=True)
class ClassShares:
    """An estimate of the shares of the classes.

    Distances are half of the sum of the differences: the share of images to be relabeled.

    Attributes:
        shares: (K,), their sum is 1.
        deviation: their mean distance from those of other draws of as many images.
        chance: the distance within which nearly all of these are.
    """

    shares: NDArray[np.float64]
    deviation: float
    chance: float

    @property
    def distance(self) -> float:
        """The distance from even shares."""
        return measure_distance(self.shares, 1 / len(self.shares))

    @property
    def is_even(self) -> bool:
        """Whether the shares are no further from even ones than by chance."""
        return self.distance <= self.chance

    @property
    def trusted(self) -> tuple[float, ...] | None:
        """The shares, empty if they are even; None if the labels do not tell enough.

        As they are off by about the deviation, so much of them is replaced by even shares: to find
        too few of a rare class does more harm than too many.
        """
        if self.deviation > _SURE or (self.is_even and self.distance > _FURTHEST):
            return None
        mixed = (1 - self.deviation) * self.shares + self.deviation / len(self.shares)
        return () if self.is_even else tuple(mixed.round(3).clip(_LEAST).tolist())


def estimate_shares(
    vectors: Vectors, labels: Labels, classes: int, seed: int = 0
) -> ClassShares | None:
    """Estimate the shares of the classes among the images without a label.

    Args:
        vectors: (N, d), features of all images.
        labels: (N,) int64, −1 where unknown.
        classes: K, at most 100.
        seed: of the hidden parts and the draws.

    Returns:
        The estimate; None with fewer than 8 labels in a class or 100 images without one.

    Example:
        >>> vectors = np.repeat(np.float32([[1, 0], [0, 1]]), [30, 90], axis=0)
        >>> labels = np.full(120, -1)
        >>> labels[:8], labels[-8:] = 0, 1
        >>> found = estimate_shares(vectors, labels, classes=2)
        >>> found.shares.round(1), found.is_even
        (array([0.2, 0.8]), False)
    """
    scale = vectors.std()
    if not _can_estimate(labels, classes) or scale == 0:
        return None
    known = labels >= 0
    given = labels[known]
    hidden, found = _classify(vectors[known] / scale, given, vectors[~known] / scale, seed)
    shares = _solve(hidden, given, found)
    generator = np.random.default_rng(seed)
    distances = []
    for _ in range(_DRAWS):
        drawn = [generator.choice(rows, len(rows)) for rows in _group(given, classes)]
        rows, others = np.concatenate(drawn), generator.choice(len(found), len(found))
        redrawn = _solve(hidden[rows], given[rows], found[others])
        distances.append(measure_distance(redrawn, shares))
    return ClassShares(shares, float(np.mean(distances)), float(np.quantile(distances, _CHANCE)))


def estimate_image_shares(
    read: Callable[[Tensor], Tensor], labels: Tensor, classes: int, seed: int = 0
) -> ClassShares | None:
    """Estimate the shares of the classes among unlabeled images, by the patches that they have.

    Args:
        read: returns the pixels (n, channels, H, W), uint8, of images by their positions (n,); of
            many images, some are looked at.
        labels: (N,) int64, −1 where unknown.
        classes: K, at most 100.
        seed: of what is drawn.

    Returns:
        The estimate; None as of :func:`estimate_shares`, or where no patch shows anything.
    """
    if not _can_estimate(labels.numpy(), classes):
        return None
    chosen = _choose(labels, classes, seed)
    vectors = compute_patch_features(map(read, torch.split(chosen, AT_ONCE)), seed)
    if vectors is None:
        return None
    return estimate_shares(vectors, labels[chosen].numpy(), classes, seed)


def measure_distance(shares: NDArray[np.float64], others: NDArray[np.float64] | float) -> float:
    """Measure how far shares (K,) are from others, in [0, 1]: total variation."""
    return float(np.abs(shares - others).sum() / 2)


def _can_estimate(labels: Labels, classes: int) -> bool:
    unknown, *known = np.bincount(labels + 1, minlength=classes + 1)
    enough = unknown >= _FEWEST_UNLABELED and min(known) >= _FEWEST_LABELS
    return bool(enough and classes <= _MOST_CLASSES)


def _choose(labels: Tensor, classes: int, seed: int) -> Tensor:
    """Positions of unlabeled images and of labeled ones, about as many of each class."""
    order = torch.randperm(len(labels), generator=make_generator(seed, "shares"))
    each = max(_FEWEST_LABELS, _MOST // classes)
    labeled = [order[labels[order] == label][:each] for label in range(classes)]
    return torch.cat([*labeled, order[labels[order] < 0][:_MOST]])


def _classify(
    vectors: Vectors, labels: Labels, asked: Vectors, seed: int
) -> tuple[Probabilities, Probabilities]:
    """Probabilities for labeled samples by classifiers that did not see them, and for others.

    Both are by the same classifiers, so that they are wrong in the same ways.
    """
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=derive_seed(seed, "folds") % 2**32)
    hidden, found = np.zeros((len(labels), labels.max() + 1)), []
    for seen, unseen in folds.split(vectors, labels):
        line = LogisticRegression(C=_INVERSE_PENALTY, max_iter=1000)
        line.fit(vectors[seen], labels[seen])
        hidden[unseen] = line.predict_proba(vectors[unseen])
        found.append(line.predict_proba(asked))
    return hidden, np.mean(found, axis=0)


def _group(labels: Labels, classes: int) -> list[NDArray[np.int64]]:
    return [np.flatnonzero(labels == label) for label in range(classes)]


def _solve(hidden: Probabilities, labels: Labels, found: Probabilities) -> NDArray[np.float64]:
    classes = found.shape[1]
    means = np.stack([hidden[rows].mean(axis=0) for rows in _group(labels, classes)])
    apart = np.square(means - means.mean(axis=0)).sum(axis=1).mean()
    penalty = _PENALTY * apart + _TINY
    wanted = means @ found.mean(axis=0) + penalty / classes
    shares: NDArray[np.float64] = np.linalg.solve(
        means @ means.T + penalty * np.eye(classes), wanted
    ).clip(0)
    shares /= shares.sum()
    return shares
