"""scikit-learn's own checks of its conventions."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.utils.estimator_checks import parametrize_with_checks

from dualstudent import DualStudentClassifier

# The one check that cannot hold has labels −1 and 1. scikit-learn spares its own semi-supervised
# classifiers that by their names.
EXPECTED = {"check_classifiers_classes": "−1 is not a class here, but an unknown label"}


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [DualStudentClassifier(device="cpu")],
    expected_failed_checks=lambda estimator: EXPECTED,
)
@pytest.mark.learns
def test_scikit_learns_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


@pytest.mark.parametrize("kind", ["U", "O"])
@pytest.mark.learns
def test_the_rest_of_the_check_that_cannot_hold(kind: str) -> None:
    X, numbers = make_blobs(n_samples=30, random_state=0, cluster_std=0.1)
    y = np.array(["one", "two", "three"])[numbers].astype(kind)
    classifier = DualStudentClassifier(epochs=20, device="cpu", random_state=0).fit(X, y)
    # The least probability of a true class is 0.98 with four seeds, on both CPUs.
    assert (classifier.predict(X) == y).all()
    assert classifier.classes_.tolist() == ["one", "three", "two"]
