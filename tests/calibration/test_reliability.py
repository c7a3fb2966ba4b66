import numpy as np
import pytest
import torch

from dualstudent.calibration import PredictedSet, expected_calibration_error, reliability
from tests.support.predictions import made


@pytest.mark.parametrize("bins", [1, 10, 15])
def test_against_numpy_sample_by_sample(bins: int) -> None:
    predicted = made()
    p, labels = predicted.probabilities.double().numpy(), predicted.labels.numpy()
    inside: list[list[tuple[float, bool]]] = [[] for _ in range(bins)]
    for row, label in zip(p, labels, strict=True):
        number = next(b for b in range(bins) if row.max() <= np.linspace(0, 1, bins + 1)[b + 1])
        inside[number].append((row.max(), row.argmax() == label))
    error = 0.0
    for found, expected in zip(reliability(predicted, bins), inside, strict=True):
        assert found.count == len(expected)
        if not expected:
            assert found.confidence is found.accuracy is None
            continue
        confidence, accuracy = np.array(expected, dtype=float).mean(axis=0)
        assert (found.confidence, found.accuracy) == pytest.approx((confidence, accuracy))
        error += len(expected) / len(labels) * abs(confidence - accuracy)
    assert error > 0.05
    assert expected_calibration_error(predicted, bins) == pytest.approx(error)


def test_a_bound_belongs_to_the_bin_below_it() -> None:
    p = torch.tensor([[0.75, 0.25], [0.76, 0.24], [1.0, 0.0], [0.5, 0.5]], dtype=torch.float64)
    yes = torch.ones(4, dtype=torch.bool)
    table = reliability(PredictedSet(p, torch.zeros(4).long(), yes, yes), bins=4)
    assert [(each.lower, each.upper, each.count) for each in table] == [
        (0.0, 0.25, 0),
        (0.25, 0.5, 1),
        (0.5, 0.75, 1),
        (0.75, 1.0, 2),
    ]


def test_fifteen_bins_unless_said_otherwise() -> None:
    assert len(reliability(made())) == 15
