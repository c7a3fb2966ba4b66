import pytest
import torch

from dualstudent.calibration import PredictedSet

P = torch.tensor([[0.2, 0.8], [0.9, 0.1]])
YES = torch.tensor([True, True])


@pytest.mark.parametrize(
    ("labels", "stable", "message"),
    [
        (torch.tensor([0]), YES, "labels: one for each of the 2 samples"),
        (torch.tensor([0, 1]), YES[:1], "stable: one for each of the 2 samples"),
        (torch.tensor([0, -1]), YES, "labels: all must be known, from 0 to 1"),
        (torch.tensor([0, 2]), YES, "labels: all must be known, from 0 to 1"),
    ],
)
def test_what_does_not_fit_is_refused(
    labels: torch.Tensor, stable: torch.Tensor, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        PredictedSet(P, labels, stable, YES)


def test_an_empty_set_is_refused() -> None:
    with pytest.raises(ValueError, match="without samples"):
        PredictedSet(P[:0], torch.zeros(0).long(), YES[:0], YES[:0])
