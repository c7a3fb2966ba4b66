"""Statistics against scipy.stats and definitions written out."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from dualstudent.experiments.statistics import (
    PairedDifference,
    compare_pairs,
    correct_p_values,
    split_deviation,
)


@pytest.mark.parametrize("count", [2, 3, 5, 20])
@pytest.mark.parametrize("gap", [0.0, 0.5, 4.0])
def test_paired_differences_are_those_of_the_paired_t_test(count: int, gap: float) -> None:
    draw = np.random.default_rng(count)
    theirs = draw.normal(30, 5, count)
    ours = theirs + draw.normal(gap, 1, count)
    found = compare_pairs(ours.tolist(), theirs.tolist())
    expected = scipy.stats.ttest_rel(ours, theirs)
    assert found.mean == pytest.approx((ours - theirs).mean())
    assert found.p_value == pytest.approx(expected.pvalue)
    assert found.interval == pytest.approx(tuple(expected.confidence_interval(0.95)))


def test_a_single_pair_has_no_interval() -> None:
    assert compare_pairs([3.0], [1.0]) == PairedDifference(2.0, None, None)


@pytest.mark.parametrize("gap", [0.0, 2.0, 0.1])  # 3.3 - 3.2 and 2.3 - 2.2 differ in the last bit
def test_equal_differences_have_no_spread_to_judge_by(gap: float) -> None:
    found = compare_pairs([2.2 + gap, 3.2 + gap], [2.2, 3.2])
    assert found.mean == pytest.approx(gap)
    assert (found.interval, found.p_value) == (None, None)


def rejected_step_by_step(p_values: list[float], level: float) -> set[int]:
    """Holm's procedure: reject the smallest p while it is at most level / (those left)."""
    left = sorted(range(len(p_values)), key=p_values.__getitem__)
    rejected: set[int] = set()
    while left and p_values[left[0]] <= level / len(left):
        rejected.add(left.pop(0))
    return rejected


@given(st.lists(st.floats(0, 1), max_size=8), st.floats(0.001, 0.999))
def test_corrected_p_values_reject_what_holms_procedure_does(
    p_values: list[float], level: float
) -> None:
    corrected = correct_p_values(p_values)
    assert all(raw <= new <= 1 for raw, new in zip(p_values, corrected, strict=True))
    if not any(math.isclose(value, level) for value in corrected):  # else rounding decides
        below = {number for number, value in enumerate(corrected) if value <= level}
        assert below == rejected_step_by_step(p_values, level)


@pytest.mark.parametrize("between", [0.0, 3.0])
@pytest.mark.parametrize(("groups", "each"), [(2, 2), (5, 3)])
def test_components_of_the_variance_are_those_of_the_analysis_of_variance(
    groups: int, each: int, between: float
) -> None:
    draw = np.random.default_rng(groups)
    values = draw.normal(20, between, (groups, 1)) + draw.normal(0, 1, (groups, each))
    ratio = scipy.stats.f_oneway(*values).statistic
    within = values.var(axis=1, ddof=1).mean()
    of_groups, of_values = split_deviation(values.tolist())
    assert of_values**2 == pytest.approx(within)
    assert of_groups**2 == pytest.approx(max(0, (ratio - 1) * within / each))


def test_components_of_the_variance_find_what_the_values_were_made_with() -> None:
    draw = np.random.default_rng(0)
    values = draw.normal(0, 3, (4000, 1)) + draw.normal(0, 2, (4000, 4))
    assert split_deviation(values.tolist()) == pytest.approx((3, 2), abs=0.15)


def test_groups_that_differ_less_than_their_values_have_no_spread_of_their_own() -> None:
    assert split_deviation([[0.0, 4.0], [1.0, 3.0]])[0] == 0
