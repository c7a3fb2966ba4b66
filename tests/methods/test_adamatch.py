from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from dualstudent.batch import Batch
from dualstudent.methods import AdaMatch, AdaMatchSettings
from tests.support.linear_student import LinearSoftmax, probabilities
from tests.support.strong_views import TASK, assert_state_is_complete, take_steps, terms_of


def adamatch(**settings: Any) -> AdaMatch:
    method = AdaMatch([LinearSoftmax(0)], AdaMatchSettings(**settings))
    method.begin(TASK)
    return method


def test_distribution_and_threshold_are_those_of_labeled_samples() -> None:
    method = adamatch(decay=0.7, relative_threshold=0.9)
    of_labeled, of_unlabeled = np.full(3, 1 / 3), None
    passed, changed = 0, 0
    for step in take_steps(method):
        of_labeled = 0.7 * of_labeled + 0.3 * step.labeled.mean(axis=0)
        now = step.q.mean(axis=0)
        of_unlabeled = now if of_unlabeled is None else 0.7 * of_unlabeled + 0.3 * now
        aligned = step.q * of_labeled / of_unlabeled
        aligned /= aligned.sum(axis=1, keepdims=True)
        answers = aligned.argmax(axis=1)
        passing = aligned.max(axis=1) >= 0.9 * step.labeled.max(axis=1).mean()
        passed += passing.sum()
        changed += (answers != step.q.argmax(axis=1)).sum()
        expected = (passing * step.cross_entropy(answers)).mean()
        found = terms_of(method, step.batch)["pseudo_labels"]
        assert found == pytest.approx(expected, rel=1e-4)
    assert 0 < passed < 6 * 12
    assert changed > 0


def test_if_all_samples_are_labeled_their_weak_views_are_compared() -> None:
    method = adamatch()
    (student,) = method.students
    assert isinstance(student, LinearSoftmax)
    points = torch.randn(6, 5, generator=torch.manual_seed(3)).double()
    batch = Batch((points, points), torch.arange(6) % 3, torch.ones(6, dtype=torch.bool))
    method.losses(batch, ramp=1.0)
    q = probabilities(points.numpy() @ student.w.T).mean(axis=0)
    np.testing.assert_allclose(method.labeled_average, 0.999 / 3 + 0.001 * q, rtol=1e-6)
    np.testing.assert_allclose(method.average, q, rtol=1e-6)


@pytest.mark.parametrize("threshold", [0.0, 1.01])
def test_a_threshold_outside_of_0_to_1_is_refused(threshold: float) -> None:
    with pytest.raises(ValidationError, match="relative_threshold"):
        AdaMatchSettings(relative_threshold=threshold)


def test_the_averages_are_all_that_is_remembered() -> None:
    method = adamatch(decay=0.9)
    for step in take_steps(method):
        method.losses(step.batch, ramp=1.0)
    assert_state_is_complete(method, adamatch(decay=0.9))
    assert {"labeled_average", "average"} < set(method.state_dict())
