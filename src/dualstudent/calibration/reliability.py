"""Reliability: are 80 % of the predictions made with 80 % confidence correct?

Guo et al., On calibration of modern neural networks, ICML 2017: samples are grouped by confidence
into bins of equal width; ECE = Σ_b (n_b / N) · |accuracy of b − mean confidence of b|.
"""

from dataclasses import dataclass

import torch

from dualstudent.calibration.predicted import PredictedSet


@dataclass(frozen=True)
class ReliabilityBin:
    """The samples whose confidence is in (lower, upper]; all values in [0, 1].

    Attributes:
        lower: lower bound of the confidence, exclusive.
        upper: upper bound of the confidence, inclusive.
        count: number of samples.
        confidence: mean confidence; None without samples.
        accuracy: share of correct predictions; None without samples.
    """

    lower: float
    upper: float
    count: int
    confidence: float | None
    accuracy: float | None


def reliability(predicted: PredictedSet, bins: int = 15) -> list[ReliabilityBin]:
    """The data of a reliability diagram, in ``bins`` bins of equal width from 0 to 1.

    Example:
        >>> import torch
        >>> p, yes = torch.tensor([[0.9, 0.1], [0.7, 0.3]]), torch.tensor([True, True])
        >>> table = reliability(PredictedSet(p, torch.tensor([0, 1]), yes, yes), bins=2)
        >>> [(each.count, each.accuracy) for each in table]
        [(0, None), (2, 0.5)]
    """
    edges = torch.linspace(0, 1, bins + 1, dtype=torch.float64)
    confidence = predicted.confidence.cpu()
    bin_index = torch.bucketize(confidence, edges[1:-1])
    counts = bin_index.bincount(minlength=bins)
    confidences = bin_index.bincount(confidence, minlength=bins) / counts
    accuracies = bin_index.bincount(predicted.correct.cpu().double(), minlength=bins) / counts
    return [
        ReliabilityBin(lower, upper, count, *((mean, accuracy) if count else (None, None)))
        for lower, upper, count, mean, accuracy in zip(
            edges[:-1].tolist(),
            edges[1:].tolist(),
            counts.tolist(),
            confidences.tolist(),
            accuracies.tolist(),
            strict=True,
        )
    ]


def expected_calibration_error(predicted: PredictedSet, bins: int = 15) -> float:
    """ECE in [0, 1], the mean gap between confidence and accuracy."""
    return sum(
        each.count / len(predicted.labels) * abs(each.accuracy - each.confidence)
        for each in reliability(predicted, bins)
        if each.accuracy is not None and each.confidence is not None
    )
