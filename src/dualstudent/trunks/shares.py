"""How many of the unlabeled images are of each class? Estimated from a few labels, in seconds.

Lipton, Wang and Smola, "Detecting and correcting for label shift with black box predictors" (ICML
2018): a classifier that is wrong in known ways still counts well. With C_kc the mean probability of
class c for images of class k whose labels were hidden, and q_c that for unlabeled images, the
shares w solve Cᵀw = q. As both are measured on few images, they are drawn a little to even shares:

    w = argmin |Cᵀw − q|² + λ s |w − 1/K|²

with s the mean squared distance of a row of C from the mean row, 1 for a classifier that is never
wrong, so that the penalty does not hide how little a poor one tells.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from torch import Tensor
from torch.nn import functional as F

from dualstudent.generators import make_generator
from dualstudent.trunks.patches import SIDE, PatchFeatures
from dualstudent.trunks.propagation import Labels, Probabilities, Vectors

_PENALTY = 0.02  # λ
_INVERSE_PENALTY = 1.0  # of logistic regression, on vectors whose values have a deviation of 1
_FOLDS, _DRAWS = 5, 100
_MOST = 1000  # unlabeled images, and as many labeled ones, that are looked at
_SURE = 0.18  # distance by chance up to which shares are trusted
_CHANCE = 1.7  # times the usual distance by chance, within which shares count as even
_FURTHEST = 0.2  # distance from even shares that nobody takes for them, even if it may be chance


@dataclass(frozen=True)
class ClassShares:
    """An estimate of the shares of the classes.

    Distances are half of the sum of the differences: the share of images to be relabeled.

    Attributes:
        shares: (K,), their sum is 1.
        deviation: how far they are from those of other draws of as many images, on average.
    """

    shares: NDArray[np.float64]
    deviation: float

    @property
    def is_even(self) -> bool:
        """Whether the shares are no further from even ones than by chance."""
        return self._distance <= _CHANCE * self.deviation

    @property
    def trusted(self) -> tuple[float, ...] | None:
        """The shares, empty if they are even; None if the labels do not tell enough.

        As they are off by about the deviation, so much of them is replaced by even shares: to find
        too few of a rare class does more harm than too many.
        """
        if self.deviation > _SURE or (self.is_even and self._distance > _FURTHEST):
            return None
        mixed = (1 - self.deviation) * self.shares + self.deviation / len(self.shares)
        return () if self.is_even else tuple(mixed.round(3).tolist())

    @property
    def _distance(self) -> float:
        return measure_distance(self.shares, 1 / len(self.shares))


def estimate_shares(
    vectors: Vectors, labels: Labels, classes: int, seed: int = 0
) -> ClassShares | None:
    """Estimate the shares of the classes among the images without a label.

    Args:
        vectors: (N, d), features of all images.
        labels: (N,) int64, −1 where unknown.
        classes: K.
        seed: of the hidden parts and the draws.

    Returns:
        The estimate; None if a class has fewer than two labels, or all have one.

    Example:
        >>> vectors = np.repeat(np.float32([[1, 0], [0, 1]]), [10, 30], axis=0)
        >>> labels = np.full(40, -1)
        >>> labels[:5], labels[-5:] = 0, 1
        >>> found = estimate_shares(vectors, labels, classes=2)
        >>> found.shares.round(1), found.is_even
        (array([0.2, 0.8]), False)
    """
    if not _can_estimate(labels, classes):
        return None
    known = labels >= 0
    scaled, given = vectors / vectors.std(), labels[known]
    counts = np.bincount(given)
    line = LogisticRegression(C=_INVERSE_PENALTY, max_iter=1000)
    folds = StratifiedKFold(min(_FOLDS, counts.min()), shuffle=True, random_state=seed)
    hidden = cross_val_predict(line, scaled[known], given, cv=folds, method="predict_proba")
    found = line.fit(scaled[known], given).predict_proba(scaled[~known])
    shares = _solve(hidden, given, found)
    generator = np.random.default_rng(seed)
    distances = []
    for _ in range(_DRAWS):
        drawn = [generator.choice(np.flatnonzero(given == k), n) for k, n in enumerate(counts)]
        rows, others = np.concatenate(drawn), generator.choice(len(found), len(found))
        redrawn = _solve(hidden[rows], given[rows], found[others])
        distances.append(measure_distance(redrawn, shares))
    return ClassShares(shares, float(np.mean(distances)))


def estimate_image_shares(
    read: Callable[[Tensor], Tensor], labels: Tensor, classes: int, seed: int = 0
) -> ClassShares | None:
    """Estimate the shares of the classes among unlabeled images, by the patches that they have.

    Args:
        read: returns the pixels (n, channels, H, W), uint8, of images by their positions (n,); of
            many images, some are looked at.
        labels: (N,) int64, −1 where unknown.
        classes: K.
        seed: of what is drawn.

    Returns:
        The estimate; None if a class has fewer than two labels, or all have one.
    """
    if not _can_estimate(labels.numpy(), classes):
        return None
    order = torch.randperm(len(labels), generator=make_generator(seed, "shares"))
    known = labels[order] >= 0
    chosen = torch.cat([order[each][:_MOST] for each in (known, ~known)])
    images = read(chosen).float() / 255
    if (largest := max(images.shape[2:])) > SIDE:
        images = F.interpolate(images, scale_factor=SIDE / largest, mode="area")
    vectors = PatchFeatures(images, seed)(images)
    return estimate_shares(vectors, labels[chosen].numpy(), classes, seed)


def measure_distance(shares: NDArray[np.float64], others: NDArray[np.float64] | float) -> float:
    """Measure how far shares (K,) are from others, in [0, 1]: total variation."""
    return float(np.abs(shares - others).sum() / 2)


def _can_estimate(labels: Labels, classes: int) -> bool:
    counts = np.bincount(labels + 1, minlength=classes + 1)  # first those without a label
    return bool(counts[0] > 0 and counts[1:].min() >= 2)


def _solve(hidden: Probabilities, labels: Labels, found: Probabilities) -> NDArray[np.float64]:
    classes = found.shape[1]
    means = np.stack([hidden[labels == k].mean(axis=0) for k in range(classes)])
    penalty = _PENALTY * np.square(means - means.mean(axis=0)).sum(axis=1).mean()
    wanted = means @ found.mean(axis=0) + penalty / classes
    shares: NDArray[np.float64] = np.linalg.solve(
        means @ means.T + penalty * np.eye(classes), wanted
    )
    shares = shares.clip(0)
    shares /= shares.sum()
    return shares
