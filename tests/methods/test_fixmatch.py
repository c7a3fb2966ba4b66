from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from dualstudent.batch import Batch
from dualstudent.errors import UserError
from dualstudent.methods import FixMatch, FixMatchSettings
from tests.support.linear_student import LinearSoftmax, probabilities
from tests.support.strong_views import (
    CLASSES,
    KNOWN,
    TASK,
    UNLABELED,
    assert_state_is_complete,
    strong_batch,
    take_steps,
    terms_of,
)


def fixmatch(**settings: Any) -> FixMatch:
    method = FixMatch([LinearSoftmax(0)], FixMatchSettings(**settings))
    method.begin(TASK)
    return method


@pytest.mark.parametrize("threshold", [0.6, 0.95])
def test_confident_predictions_for_weak_views_label_the_strong_views(threshold: float) -> None:
    method = fixmatch(pseudo_label_threshold=threshold, pseudo_label_weight=0.7)
    passed = 0
    for step in take_steps(method):
        confident = step.q.max(axis=1) >= threshold
        passed += confident.sum()
        unlabeled = (confident * step.cross_entropy(step.q.argmax(axis=1))).mean()
        expected = {
            "classification": -np.log(step.labeled[range(4), KNOWN]).mean(),
            "pseudo_labels": 0.7 * unlabeled,
        }
        assert terms_of(method, step.batch) == pytest.approx(expected, rel=1e-9)
    assert 0 < passed < 6 * UNLABELED


def test_gradient_comes_from_strong_and_labeled_views_only() -> None:
    method, batch = fixmatch(pseudo_label_threshold=0.8), strong_batch(0)
    (student,) = method.students
    assert isinstance(student, LinearSoftmax)
    weak, strong = (view.numpy() for view in batch.views)
    said = probabilities(weak @ student.w.T)
    q, labeled = said[:UNLABELED], said[UNLABELED:]
    error = probabilities(strong @ student.w.T) - np.eye(CLASSES)[q.argmax(axis=1)]
    error *= (q.max(axis=1) >= 0.8)[:, None] / UNLABELED
    known = (labeled - np.eye(CLASSES)[KNOWN]) / len(KNOWN)
    (loss,) = method.losses(batch, ramp=1.0)
    (gradient,) = torch.autograd.grad(loss.total, student.weight)
    expected = error.T @ strong + known.T @ weak[UNLABELED:]
    np.testing.assert_allclose(gradient.numpy(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("target", "shares"),
    [("labeled", [2, 1, 1]), ("uniform", [1, 1, 1]), ((0.5, 0.3, 0.2), [5, 3, 2])],
)
def test_alignment_scales_predictions_by_the_wanted_over_the_average_distribution(
    target: str | tuple[float, ...], shares: list[int]
) -> None:
    method = fixmatch(
        pseudo_label_threshold=0.7, distribution_alignment=True, alignment_target=target, decay=0.9
    )
    average, changed = None, 0
    for step in take_steps(method):
        now = step.q.mean(axis=0)
        average = now if average is None else 0.9 * average + 0.1 * now
        aligned = step.q * np.array(shares) / sum(shares) / average
        aligned /= aligned.sum(axis=1, keepdims=True)
        answers = aligned.argmax(axis=1)
        changed += (answers != step.q.argmax(axis=1)).sum()
        confident = aligned.max(axis=1) >= 0.7
        expected = (confident * step.cross_entropy(answers)).mean()
        found = terms_of(method, step.batch)["pseudo_labels"]
        assert found == pytest.approx(expected, rel=1e-4)
    assert changed > 0


def test_the_average_is_all_that_alignment_remembers() -> None:
    settings = {"pseudo_label_threshold": 0.7, "distribution_alignment": True, "decay": 0.9}
    method = fixmatch(**settings)
    for step in take_steps(method):
        method.losses(step.batch, ramp=1.0)
    assert_state_is_complete(method, fixmatch(**settings))
    assert "average" in method.state_dict()
    assert "average" not in fixmatch().state_dict()


def test_without_label_counts_all_classes_are_wanted_equally() -> None:
    method = FixMatch([LinearSoftmax(0)], FixMatchSettings(distribution_alignment=True))
    method.begin(replace(TASK, label_counts=None))
    assert method.target.tolist() == pytest.approx([1 / 3] * 3)


def test_shares_of_another_number_of_classes_are_refused() -> None:
    settings = FixMatchSettings(distribution_alignment=True, alignment_target=(0.5, 0.5))
    with pytest.raises(UserError, match="alignment_target has 2 shares; there are 3 classes"):
        FixMatch([LinearSoftmax(0)], settings).begin(TASK)


def test_if_all_samples_are_labeled_strong_views_learn_labels_and_pseudo_labels() -> None:
    method = fixmatch(pseudo_label_threshold=0.5)
    (student,) = method.students
    assert isinstance(student, LinearSoftmax)
    with torch.no_grad():
        weak = torch.randn(6, 5, generator=torch.manual_seed(3)).double()
    strong, labels = weak + 0.3, torch.tensor([0, 1, 2, 0, 1, 2])
    batch = Batch((weak, strong), labels, unlabeled=torch.ones(6, dtype=torch.bool))
    q, p = (probabilities(view.numpy() @ student.w.T) for view in (weak, strong))
    confident = q.max(axis=1) >= 0.5
    expected = {
        "classification": -np.log(p[range(6), labels]).mean(),
        "pseudo_labels": -(confident * np.log(p[range(6), q.argmax(axis=1)])).mean(),
    }
    assert terms_of(method, batch) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("threshold", [0.0, -0.1, 1.01])
def test_a_threshold_outside_of_0_to_1_is_refused(threshold: float) -> None:
    with pytest.raises(ValidationError, match="pseudo_label_threshold"):
        FixMatchSettings(pseudo_label_threshold=threshold)
