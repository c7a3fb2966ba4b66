from typing import Any

import numpy as np
import pytest
import torch

from dualstudent.methods import SoftMatch, SoftMatchSettings
from tests.support.linear_student import LinearSoftmax
from tests.support.strong_views import TASK, assert_state_is_complete, take_steps, terms_of


def softmatch(**settings: Any) -> SoftMatch:
    method = SoftMatch([LinearSoftmax(0)], SoftMatchSettings(**settings))
    method.begin(TASK)
    return method


def test_weights_are_a_truncated_gaussian_of_the_aligned_confidence() -> None:
    method = softmatch(decay=0.7)
    mean, variance, average = 1 / 3, 1.0, None
    smallest, changed = 1.0, 0
    for step in take_steps(method):
        now = step.q.mean(axis=0)
        average = now if average is None else 0.7 * average + 0.3 * now
        aligned = step.q / average
        aligned /= aligned.sum(axis=1, keepdims=True)
        top = aligned.max(axis=1)
        mean = 0.7 * mean + 0.3 * top.mean()
        variance = 0.7 * variance + 0.3 * top.var(ddof=1)
        weights = np.array([np.exp(-(min(t - mean, 0) ** 2) / (2 * variance / 4)) for t in top])
        answers = step.q.argmax(axis=1)  # of the predictions as they are
        changed += (answers != aligned.argmax(axis=1)).sum()
        smallest = min(smallest, weights.min())
        expected = (weights * step.cross_entropy(answers)).mean()
        found = terms_of(method, step.batch)["pseudo_labels"]
        assert found == pytest.approx(expected, rel=1e-5)
    assert smallest < 0.7
    assert changed > 0


def test_confident_predictions_count_fully() -> None:
    method = softmatch()
    weak = torch.tensor([[0.9, 0.1, 0.0], [0.0, 0.2, 0.8], [0.1, 0.8, 0.1]])
    pseudo = method.choose(weak, weak, torch.arange(3))
    assert pseudo.weights.tolist() == [1, 1, 1]  # all are above μ, which began at 1/3
    assert pseudo.labels.tolist() == [0, 2, 1]


def test_a_single_prediction_has_no_variance() -> None:
    method = softmatch(decay=0.5)
    weak = torch.tensor([[0.9, 0.1, 0.0]])
    assert method.choose(weak, weak, torch.arange(1)).weights.isfinite().all()
    assert method.variance == 0.5


def test_the_averages_are_all_that_is_remembered() -> None:
    method = softmatch(decay=0.9)
    for step in take_steps(method):
        method.losses(step.batch, ramp=1.0)
    assert_state_is_complete(method, softmatch(decay=0.9))
    assert {"mean", "variance", "average"} < set(method.state_dict())
