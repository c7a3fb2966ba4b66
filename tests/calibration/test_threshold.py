from dataclasses import replace
from math import comb

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dualstudent.calibration import PredictedSet, find_threshold, lower_bound
from tests.support.predictions import made


@pytest.mark.parametrize("precision", [0.4, 0.5, 0.55, 0.6, 0.65, 1.0])
def test_no_smaller_trust_is_enough(precision: float) -> None:
    """Against NumPy, which tries every probability that occurs."""
    predicted = made()
    p = predicted.probabilities.double().numpy()
    trust, right = p.max(axis=1), p.argmax(axis=1) == predicted.labels.numpy()
    believable = predicted.stable.numpy() & predicted.agree.numpy()
    enough = {}
    for candidate in np.unique(trust[believable]):
        believed = believable & (trust >= candidate)
        if right[believed].mean() >= precision:
            enough[candidate] = (right[believed].sum(), believed.sum())
    found = find_threshold(predicted, precision)
    if not enough:
        assert found is None
        return
    assert found is not None
    assert found.trust == min(enough)
    assert (found.correct, found.accepted) == enough[found.trust]
    assert found.precision == found.correct / found.accepted >= precision


def test_the_precisions_tried_above_are_of_both_kinds() -> None:
    found = [find_threshold(made(), precision) for precision in (0.4, 0.6, 1.0)]
    assert found[0] is not None
    assert found[1] is not None
    assert found[0].trust < found[1].trust
    assert found[2] is None


def predictions(trust: list[float], right: list[bool]) -> PredictedSet:
    p = torch.tensor([[each, 1 - each] for each in trust], dtype=torch.float64)
    labels, yes = (~torch.tensor(right)).long(), torch.ones(len(right), dtype=torch.bool)
    return PredictedSet(p, labels, yes, yes)


def test_a_dip_above_the_smallest_trust_does_not_hide_it() -> None:
    """At 0.9 one of two is right, at 0.7 three of four: enough, and less trust."""
    found = find_threshold(predictions([0.95, 0.9, 0.8, 0.7], [True, False, True, True]), 0.75)
    assert found is not None
    assert (found.trust, found.correct, found.accepted) == (0.7, 3, 4)


def test_a_precision_that_is_just_reached_is_enough() -> None:
    """55 of 100 are 55 %, although 0.55 · 100 is a little more than 55 in floats."""
    assert 0.55 * 100 > 55
    found = find_threshold(predictions([0.9] * 100, [True] * 55 + [False] * 45), 0.55)
    assert found is not None
    assert found.correct == 55


@pytest.mark.parametrize("which", ["stable", "agree"])
def test_nothing_to_believe(which: str) -> None:
    predicted = predictions([0.9, 0.8], [True, True])
    assert find_threshold(replace(predicted, **{which: torch.tensor([False, False])}), 0.1) is None


@given(total=st.integers(1, 60), share=st.floats(0, 1), confidence=st.sampled_from([0.9, 0.95]))
def test_the_bound_against_the_binomial_distribution(
    total: int, share: float, confidence: float
) -> None:
    """At the bound, so many right ones or more have just the probability that is left."""
    right = round(share * total)
    bound = lower_bound(right, total, confidence)
    if right == 0:
        assert bound == 0
        return
    tail = sum(
        comb(total, k) * bound**k * (1 - bound) ** (total - k) for k in range(right, total + 1)
    )
    assert tail == pytest.approx(1 - confidence, rel=1e-6)
    assert 0 < bound < right / total


@pytest.mark.parametrize(("right", "total"), [(0, 0), (3, 2), (-1, 2)])
def test_a_bound_of_nonsense_is_refused(right: int, total: int) -> None:
    with pytest.raises(ValueError, match=f"{right} of {total}"):
        lower_bound(right, total)
