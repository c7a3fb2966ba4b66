"""Errors that were measured on the same images: of a run, and of others beside it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

_QUANTILE = 1.96  # of the normal distribution, for 95 %
_LENGTHS = {1: "as long", 2: "half as long", 3: "a third as long"}


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
class MeasuredErrors:
    """Errors of a run and of others on the same images.

    Attributes:
        part: the images that all were measured on: a part of the data, or the labels, each of
            which was hidden once (cross-validation).
        images: their number.
        rows: name → error; first the method of the run, last the baselines.
        folds: parts that the labels were divided into; 0 without cross-validation.
        shorter: how many times as short as that of the run each training was.
        never_hidden: classes with a single labeled image, which nothing is known about.
    """

    part: Literal["test", "validation", "source validation", "cross-validation"]
    images: int
    rows: Mapping[str, Measured]
    folds: int = 0
    shorter: int = 2
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
            f"parts, and predicted from the others and all images, by trainings "
            f"{_LENGTHS[self.shorter]}; in percent, with 95 % intervals (Wilson)."
        ]
        if self.never_hidden:
            sentences.append(
                f"Not measured, as they have a single labeled image: {', '.join(self.never_hidden)}"
                "."
            )
        return sentences


def read_measured(result: Mapping[str, Any]) -> MeasuredErrors | None:
    """Return the errors that the result of a run holds; None if there are none."""
    found = result.get("on_features") or result.get("cross_validation")
    if found is None:
        return None
    rows = {name: Measured(**each) for name, each in found["rows"].items()}
    return MeasuredErrors(**found | {"rows": rows})


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


def count_wrong(
    probabilities: NDArray[np.float64], truth: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return (n,), 1 where the most probable class is not the true one, else 0.

    Args:
        probabilities: (n, C).
        truth: (n,) int64.
    """
    wrong: NDArray[np.float64] = (probabilities.argmax(axis=1) != truth).astype(np.float64)
    return wrong
