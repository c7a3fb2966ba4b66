import numpy as np
import pytest
import torch

from dualstudent.calibration import (
    PredictedSet,
    expected_calibration_error,
    fit_temperature,
    recalibrate,
)
from dualstudent.calibration.temperature import LOWEST
from tests.support.predictions import made


def scaled_by_numpy(predicted: PredictedSet, temperature: float) -> np.ndarray:
    powers = predicted.probabilities.double().numpy() ** (1 / temperature)
    return powers / powers.sum(axis=1, keepdims=True)  # type: ignore[no-any-return]


def test_no_other_temperature_makes_the_labels_more_likely() -> None:
    validation = made(seed=1)
    temperature = fit_temperature(validation)
    labels = validation.labels.numpy()
    grid = np.exp(np.linspace(np.log(0.05), np.log(50), 2000))
    likelihood = [
        -np.log(scaled_by_numpy(validation, t)[np.arange(len(labels)), labels]).mean() for t in grid
    ]
    best = grid[int(np.argmin(likelihood))]
    assert temperature == pytest.approx(best, rel=0.005)
    assert temperature > 1.2  # it was too sure


def test_calibration_of_other_samples_gets_better_and_no_answer_changes() -> None:
    temperature = fit_temperature(made(seed=1))
    test = made(seed=2)
    cooled = recalibrate(test, temperature)
    expected = scaled_by_numpy(test, temperature)
    np.testing.assert_allclose(cooled.probabilities.numpy(), expected, rtol=1e-5)
    assert torch.equal(cooled.predicted, test.predicted)
    assert expected_calibration_error(cooled) < 0.5 * expected_calibration_error(test)


def test_certainty_is_survived_and_the_limit_is_kept() -> None:
    """A probability of exactly 0 for the truth, and a set without mistakes."""
    p, labels = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.2, 0.8]]), torch.tensor([0, 1, 1])
    yes = torch.ones(3, dtype=torch.bool)
    assert fit_temperature(PredictedSet(p, labels, yes, yes)) > 1
    right = PredictedSet(torch.tensor([[0.6, 0.4]] * 3), torch.tensor([0, 0, 0]), yes, yes)
    assert LOWEST <= fit_temperature(right) < 0.1


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_a_temperature_is_positive(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature = "):
        recalibrate(made(), temperature)
