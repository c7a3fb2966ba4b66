"""Calibration: of the answers given with 80 % confidence, are 80 % right?

Guo et al., On calibration of modern neural networks, ICML 2017: samples are put into bins of
equal width by their confidence; ECE = Σ_b (n_b / N) · |accuracy of b − mean confidence of b|.
"""

from dataclasses import dataclass

import torch

from dualstudent.calibration.predicted import PredictedSet


@dataclass(frozen=True)
class ReliabilityBin:
    """The samples whose confidence is in (lower, upper]; all values in [0, 1].

    Attributes:
        lower: bound of the bin, outside it.
        upper: bound of the bin, inside it.
        count: how many samples there are.
        confidence: their mean confidence; None if there are none.
        accuracy: the share of them that is predicted right; None if there are none.
    """

    lower: float
    upper: float
    count: int
    confidence: float | None
    accuracy: float | None


def reliability(predicted: PredictedSet, bins: int = 15) -> list[ReliabilityBin]:
    """The table behind a reliability diagram: ``bins`` of equal width, from 0 to 1.

    Example:
        >>> import torch
        >>> p, yes = torch.tensor([[0.9, 0.1], [0.7, 0.3]]), torch.tensor([True, True])
        >>> table = reliability(PredictedSet(p, torch.tensor([0, 1]), yes, yes), bins=2)
        >>> [(each.count, each.accuracy) for each in table]
        [(0, None), (2, 0.5)]
    """
    edges = torch.linspace(0, 1, bins + 1, dtype=torch.float64)
    confidence = predicted.confidence.cpu()
    place = torch.bucketize(confidence, edges[1:-1])
    counts = place.bincount(minlength=bins)
    confidences = place.bincount(confidence, minlength=bins) / counts
    accuracies = place.bincount(predicted.correct.cpu().double(), minlength=bins) / counts
    return [
        ReliabilityBin(lower, upper, count, *((sure, right) if count else (None, None)))
        for lower, upper, count, sure, right in zip(
            edges[:-1].tolist(),
            edges[1:].tolist(),
            counts.tolist(),
            confidences.tolist(),
            accuracies.tolist(),
            strict=True,
        )
    ]


def expected_calibration_error(predicted: PredictedSet, bins: int = 15) -> float:
    """ECE in [0, 1]: how far confidence and accuracy are apart, on average over the samples."""
    return sum(
        each.count / len(predicted.labels) * abs(each.accuracy - each.confidence)
        for each in reliability(predicted, bins)
        if each.accuracy is not None and each.confidence is not None
    )
