from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from dualstudent.methods import FlexMatch, FlexMatchSettings
from tests.support.linear_student import LinearSoftmax
from tests.support.strong_views import (
    SAMPLES,
    TASK,
    assert_state_is_complete,
    take_steps,
    terms_of,
)


def flexmatch(**settings: Any) -> FlexMatch:
    method = FlexMatch([LinearSoftmax(0)], FlexMatchSettings(**settings))
    method.begin(TASK)
    return method


def test_thresholds_follow_how_many_samples_of_a_class_are_learned() -> None:
    method = flexmatch(pseudo_label_threshold=0.9)
    learned: dict[int, int] = {}  # sample → class
    low = 0
    for step in take_steps(method, count=12):
        counts = Counter(learned.values())
        largest = max(*(counts[c] for c in range(3)), 36 - len(learned))
        beta = [counts[c] / largest for c in range(3)]
        weights = []
        for q in step.q:
            best = int(q.argmax())
            threshold = 0.9 * beta[best] / (2 - beta[best])
            weights.append(float(q[best] >= threshold))
            low += threshold <= q[best] < 0.9
        for sample, q in zip(step.indices, step.q, strict=True):
            if q.max() >= 0.9:
                learned[int(sample)] = int(q.argmax())
        expected = (np.array(weights) * step.cross_entropy(step.q.argmax(axis=1))).mean()
        assert terms_of(method, step.batch)["pseudo_labels"] == pytest.approx(expected, rel=1e-9)
        remembered = {n: c for n, c in enumerate(method.learned.tolist()) if c >= 0}
        assert remembered == learned
    assert low > 0
    assert len(learned) > 18  # more than the unused: the largest class decides in the end


def test_at_first_every_prediction_counts() -> None:
    method = flexmatch()
    step = next(take_steps(method))
    expected = step.cross_entropy(step.q.argmax(axis=1)).mean()
    assert terms_of(method, step.batch)["pseudo_labels"] == pytest.approx(expected, rel=1e-9)


def test_samples_that_are_never_unlabeled_do_not_count_as_unused() -> None:
    """All 36 unlabeled samples are learned: as a class of 18 is the largest, β is 1 there."""
    method = flexmatch()
    method.learned[:36] = torch.tensor([0] * 18 + [1] * 9 + [2] * 9)
    assert method._measure_progress(classes=3).tolist() == [1, 0.5, 0.5]


def test_what_was_learned_is_all_that_is_remembered() -> None:
    method = flexmatch(pseudo_label_threshold=0.8)
    for step in take_steps(method):
        method.losses(step.batch, ramp=1.0)
    assert_state_is_complete(method, flexmatch(pseudo_label_threshold=0.8))
    assert method.learned.nbytes == 8 * SAMPLES


def test_of_a_sample_twice_in_a_batch_the_last_prediction_counts() -> None:
    method = flexmatch(pseudo_label_threshold=0.5)
    weak = torch.tensor([[0.9, 0.1, 0.0], [0.1, 0.9, 0.0], [0.0, 0.2, 0.8]])
    method.choose(weak, weak, torch.tensor([7, 7, 3]))
    assert method.learned[[3, 7]].tolist() == [2, 1]


def test_progress_is_between_0_and_1() -> None:
    method = flexmatch(pseudo_label_threshold=0.4)
    for step in take_steps(method):
        method.losses(step.batch, ramp=1.0)
        progress = method._measure_progress(classes=3).numpy()
        assert np.all((progress >= 0) & (progress <= 1))
