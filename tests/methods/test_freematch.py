from typing import Any

import numpy as np
import pytest
import torch

from dualstudent.methods import FreeMatch, FreeMatchSettings
from tests.support.linear_student import Array, LinearSoftmax
from tests.support.strong_views import (
    CLASSES,
    TASK,
    assert_state_is_complete,
    strong_batch,
    take_steps,
    terms_of,
)


def freematch(**settings: Any) -> FreeMatch:
    method = FreeMatch([LinearSoftmax(0)], FreeMatchSettings(**settings))
    method.begin(TASK)
    return method


def fairness(p: Array, average: Array, shares: Array) -> float:
    """Of the strong predictions that pass, class by class."""
    answers = np.bincount(p.argmax(axis=1), minlength=CLASSES) / len(p)
    mean = p.mean(axis=0)
    found = np.array([mean[c] / answers[c] if answers[c] else 0.0 for c in range(CLASSES)])
    wanted = average / shares
    found, wanted = found / found.sum(), wanted / wanted.sum()
    return float((wanted * np.log(found + 1e-12)).sum())


def test_thresholds_and_fairness_follow_averages_of_the_predictions() -> None:
    method = freematch(decay=0.8, fairness_weight=0.3)
    threshold, average, shares = 1 / 3, np.full(3, 1 / 3), np.full(3, 1 / 3)
    refused = 0
    for step in take_steps(method):
        answers = step.q.argmax(axis=1)
        histogram = np.bincount(answers, minlength=3) / len(answers)
        threshold = 0.8 * threshold + 0.2 * step.q.max(axis=1).mean()
        average = 0.8 * average + 0.2 * step.q.mean(axis=0)
        shares = 0.8 * shares + 0.2 * histogram
        passing = step.q.max(axis=1) >= (threshold * average / average.max())[answers]
        refused += (~passing).sum()
        found = terms_of(method, step.batch)
        expected = (passing * step.cross_entropy(answers)).mean()
        assert found["pseudo_labels"] == pytest.approx(expected, rel=1e-9)
        expected = 0.3 * fairness(step.p[passing], average, shares)
        assert found["fairness"] == pytest.approx(expected, rel=1e-5)
        assert method.threshold.item() == pytest.approx(threshold, rel=1e-5)
    assert refused > 0


def test_fairness_maximizes_the_cross_entropy_by_the_student_only() -> None:
    method, batch = freematch(), strong_batch(0)
    (student,) = method.students
    assert isinstance(student, LinearSoftmax)
    (loss,) = method.losses(batch, ramp=1.0)
    term = loss.terms["fairness"]
    assert term < 0
    (gradient,) = torch.autograd.grad(term, student.weight)
    numeric, size = np.zeros_like(student.w), 1e-6
    for place in np.ndindex(numeric.shape):
        change = torch.zeros_like(student.weight)
        change[place] = size
        up, down = (fairness_of_strong_views(student.weight + sign * change) for sign in (1, -1))
        numeric[place] = (up - down) / (2 * size)
    np.testing.assert_allclose(gradient.numpy(), numeric, rtol=0, atol=1e-8)


def fairness_of_strong_views(weight: torch.Tensor) -> float:
    """With other weights for the strong views only: what passes and is expected stays."""
    method, batch = freematch(), strong_batch(0)
    weak, strong = batch.views
    with torch.no_grad():
        q = LinearSoftmax(0)(weak[: len(strong)]).class_logits.softmax(dim=1)
        pseudo = method.choose(q, q, batch.indices[: len(strong)])
        terms = method.terms(strong @ weight.T, batch.labels[: len(strong)], pseudo)
    return terms["fairness"].item()


def test_without_passing_predictions_fairness_is_off() -> None:
    method = freematch()
    method.threshold.fill_(2.0)
    terms = terms_of(method, strong_batch(0))
    assert terms["pseudo_labels"] == terms["fairness"] == 0


def test_the_averages_are_all_that_is_remembered() -> None:
    method = freematch(decay=0.9)
    for step in take_steps(method):
        method.losses(step.batch, ramp=1.0)
    assert_state_is_complete(method, freematch(decay=0.9))
    assert {"threshold", "average", "shares"} < set(method.state_dict())
