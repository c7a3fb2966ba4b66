import numpy as np
import pytest
import torch
from sklearn.metrics import confusion_matrix as reference

from dualstudent.calibration import PredictedSet, confusion_matrix
from tests.support.predictions import made

P = torch.tensor([[0.2, 0.8], [0.9, 0.1]])
YES = torch.tensor([True, True])


@pytest.mark.parametrize(
    ("labels", "stable", "key"),
    [
        (torch.tensor([0]), YES, "labels"),
        (torch.tensor([0, 1]), YES[:1], "stable"),
        (torch.tensor([0, -1]), YES, "labels"),
        (torch.tensor([0, 2]), YES, "labels"),
    ],
)
def test_what_does_not_fit_is_refused(labels: torch.Tensor, stable: torch.Tensor, key: str) -> None:
    with pytest.raises(ValueError, match=f"^{key}:"):
        PredictedSet(P, labels, stable, YES)


def test_an_empty_set_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^probabilities:"):
        PredictedSet(P[:0], torch.zeros(0).long(), YES[:0], YES[:0])


def test_the_confusion_matrix_is_that_of_scikit_learn() -> None:
    predicted = made()
    said, true = predicted.probabilities.numpy().argmax(axis=1), predicted.labels.numpy()
    matrix = confusion_matrix(predicted)
    np.testing.assert_array_equal(matrix.numpy(), reference(true, said, labels=range(4)))
