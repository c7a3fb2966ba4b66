"""From which trust on a prediction is as good as a label, and how sure one can be of that."""

from dataclasses import dataclass

import torch
from scipy.special import betaincinv

from dualstudent.calibration.predicted import PredictedSet


@dataclass(frozen=True)
class Threshold:
    """What comes of believing the predictions that are stable, agreed upon and sure enough.

    Attributes:
        trust: the smallest probability that is believed.
        right: how many of the believed predictions are right.
        believed: how many there are, at least one.
    """

    trust: float
    right: int
    believed: int

    @property
    def precision(self) -> float:
        """The share of right ones, in [0, 1]."""
        return self.right / self.believed

    @property
    def at_least(self) -> float:
        """What the precision is at least, with 95 % confidence."""
        return lower_bound(self.right, self.believed)


def find_threshold(predicted: PredictedSet, precision: float, fewest: int = 1) -> Threshold | None:
    """The smallest trust from which on predictions are right often enough.

    Only those that are stable, and on which the students agree, are believed at all. Equal
    probabilities are believed together.

    Args:
        predicted: of samples that trained nothing; ``stable`` by whatever is to be believed.
        precision: the share of right ones that is wanted, in (0, 1].
        fewest: how many predictions must be believed for their share to tell anything.

    Returns:
        None if no trust is enough.

    Example:
        >>> p = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]], dtype=torch.float64)
        >>> yes = torch.ones(4, dtype=torch.bool)
        >>> find_threshold(PredictedSet(p, torch.tensor([0, 0, 1, 1]), yes, yes), precision=0.6)
        Threshold(trust=0.7, right=2, believed=3)
    """
    candidates = predicted.stable & predicted.agree
    trust, place = torch.unique(-predicted.confidence[candidates], return_inverse=True)
    believed = place.bincount(minlength=len(trust)).cumsum(0)
    correct = predicted.correct[candidates].double()
    right = place.bincount(correct, minlength=len(trust)).cumsum(0)
    enough = ((right / believed >= precision) & (believed >= fewest)).nonzero()
    if len(enough) == 0:
        return None
    last = int(enough[-1])
    return Threshold(-trust[last].item(), int(right[last]), int(believed[last]))


def lower_bound(right: int, total: int, confidence: float = 0.95) -> float:
    """What a share is at least, seen ``right`` times in ``total`` (Clopper and Pearson, 1934).

    The smallest share for which so many right ones, or more, are as likely as 1 − confidence.

    Example:
        >>> round(lower_bound(14, 14), 2)
        0.81
    """
    if not 0 <= right <= total or total == 0:
        raise ValueError(f"{right} of {total}: use a part of at least one")
    return float(betaincinv(right, total - right + 1, 1 - confidence)) if right else 0.0
