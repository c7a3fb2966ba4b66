import numpy as np
import pytest
import torch
from sklearn.metrics import confusion_matrix as reference
from sklearn.metrics import precision_recall_fscore_support

from dualstudent.calibration import class_figures, confusion_matrix
from tests.support.predictions import CLASSES, made


def test_against_scikit_learn() -> None:
    predicted = made()
    said, true = predicted.probabilities.numpy().argmax(axis=1), predicted.labels.numpy()
    matrix = confusion_matrix(predicted)
    np.testing.assert_array_equal(matrix.numpy(), reference(true, said, labels=range(4)))
    precision, recall, _, count = precision_recall_fscore_support(
        true, said, labels=range(4), zero_division=np.nan
    )
    for number, found in enumerate(class_figures(matrix, CLASSES)):
        assert (found.name, found.count) == (CLASSES[number], count[number])
        assert found.precision == pytest.approx(precision[number])
        if CLASSES[number] == "emu":
            assert found.recall is None
        else:
            assert found.recall == pytest.approx(recall[number])


def test_a_class_that_is_never_predicted_has_no_precision() -> None:
    _, never = class_figures(torch.tensor([[3, 0], [2, 0]]), ("a", "b"))
    assert (never.count, never.precision, never.recall) == (2, None, 0.0)


def test_names_must_be_as_many_as_classes() -> None:
    with pytest.raises(ValueError, match="zip"):
        class_figures(torch.eye(3), ("a", "b"))
