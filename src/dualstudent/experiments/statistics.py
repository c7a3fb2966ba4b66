"""Statistics of paired runs: intervals, p-values and components of the variance."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev, variance

from scipy.special import stdtr, stdtrit  # Student's t: distribution function and quantile

LEVEL = 0.95  # of intervals
_NO_SPREAD = 1e-9  # standard error in %, far below one image of any test set: rounding


@dataclass(frozen=True)
class PairedDifference:
    """The mean of paired differences.

    Attributes:
        mean: the mean.
        interval: its confidence interval; None for a single pair, and if all pairs differ equally:
            then there is no spread to judge by.
        p_value: two-sided p-value of "the mean is 0"; None where there is no interval.
    """

    mean: float
    interval: tuple[float, float] | None = None
    p_value: float | None = None


def compare_pairs(ours: Sequence[float], theirs: Sequence[float]) -> PairedDifference:
    """Compare paired values by Student's t.

    With n differences of mean m and standard deviation s, the interval is
    m ± t · s/√n, where t is the 97.5 % quantile for n − 1 degrees of freedom, and the p-value is
    P(|T| > |m| √n / s).

    Args:
        ours: n values in %, in the order of ``theirs``.
        theirs: what is subtracted.

    Example:
        >>> found = compare_pairs([3.0, 5.0, 5.0], [1.0, 2.0, 1.0])
        >>> found.mean, [round(end, 2) for end in found.interval], round(found.p_value, 3)
        (3.0, [0.52, 5.48], 0.035)
    """
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    mean, count = fmean(differences), len(differences)
    if count < 2:
        return PairedDifference(mean)
    error = stdev(differences) / math.sqrt(count)
    if error < _NO_SPREAD:
        return PairedDifference(mean)
    half = float(stdtrit(count - 1, (1 + LEVEL) / 2)) * error
    p_value = 2 * float(stdtr(count - 1, -abs(mean) / error))
    return PairedDifference(mean, (mean - half, mean + half), p_value)


def correct_p_values(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for their number by Holm's method.

    The k-th smallest of m is multiplied by m − k + 1, is at least as large as the one before, and
    at most 1. Then the chance of any value below α, if no difference is real, is at most α.

    Example:
        >>> correct_p_values([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected


def split_deviation(groups: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Split the spread of values into that between groups and that within a group.

    The values are modeled as μ + aᵢ + eᵢₖ with independent random aᵢ of each of n groups and eᵢₖ
    of each of its K values (one-way random effects). With the mean square within groups W and
    that between groups B = K · variance of the group means, the standard deviations are
    √max(0, (B − W) / K) of aᵢ and √W of eᵢₖ.

    Args:
        groups: at least two, of K ≥ 2 values each.

    Example:
        >>> [round(deviation, 3) for deviation in split_deviation([[1.0, 3.0], [7.0, 9.0]])]
        [4.123, 1.414]
    """
    within = fmean(variance(group) for group in groups)
    of_means = variance([fmean(group) for group in groups])
    return math.sqrt(max(0.0, of_means - within / len(groups[0]))), math.sqrt(within)
