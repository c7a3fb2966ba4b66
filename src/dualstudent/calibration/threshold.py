"""The confidence from which on predictions are as good as labels."""

from dataclasses import dataclass

import torch

from dualstudent.calibration.predicted import PredictedSet


@dataclass(frozen=True)
class Threshold:
    """A confidence threshold, and how many held-out predictions above it are correct.

    Attributes:
        trust: smallest accepted confidence.
        correct: number of accepted predictions that are correct.
        accepted: number of accepted predictions, at least 1.
    """

    trust: float
    correct: int
    accepted: int

    @property
    def precision(self) -> float:
        """Share of the accepted predictions that are correct, in [0, 1]."""
        return self.correct / self.accepted

    @property
    def at_least(self) -> float:
        """Lower bound of the precision, with 95 % confidence."""
        return lower_bound(self.correct, self.accepted)


def find_threshold(
    predicted: PredictedSet, precision: float, min_accepted: int = 1
) -> Threshold | None:
    """The smallest confidence threshold at which predictions reach a precision.

    Only stable predictions on which all students agree are accepted. Those of equal confidence
    are accepted together.

    Args:
        predicted: of samples that were not used for training.
        precision: wanted share of correct predictions among the accepted ones, in (0, 1].
        min_accepted: smallest number of accepted predictions.

    Returns:
        None if no threshold reaches the precision.

    Example:
        >>> p = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]], dtype=torch.float64)
        >>> yes = torch.ones(4, dtype=torch.bool)
        >>> find_threshold(PredictedSet(p, torch.tensor([0, 0, 1, 1]), yes, yes), precision=0.6)
        Threshold(trust=0.7, correct=2, accepted=3)
    """
    candidates = predicted.stable & predicted.agree
    trust, group = torch.unique(-predicted.confidence[candidates], return_inverse=True)
    accepted = group.bincount(minlength=len(trust)).cumsum(0)
    is_correct = predicted.correct[candidates].double()
    correct = group.bincount(is_correct, minlength=len(trust)).cumsum(0)
    enough = ((correct / accepted >= precision) & (accepted >= min_accepted)).nonzero()
    if len(enough) == 0:
        return None
    last = int(enough[-1])
    return Threshold(-trust[last].item(), int(correct[last]), int(accepted[last]))


def lower_bound(successes: int, total: int, confidence: float = 0.95) -> float:
    """One-sided lower confidence bound of a binomial proportion (Clopper and Pearson, 1934).

    Example:
        >>> round(lower_bound(14, 14), 2)
        0.81
    """
    from scipy.special import betaincinv

    if not 0 <= successes <= total or total == 0:
        raise ValueError(f"{successes} of {total}: use 0 ≤ successes ≤ total and total ≥ 1")
    return float(betaincinv(successes, total - successes + 1, 1 - confidence)) if successes else 0.0
