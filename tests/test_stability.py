from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from torch import Tensor

from dualstudent.stability import instability, is_guided, is_stable

Array = NDArray[np.float64]
Precision = type[np.float32] | type[np.float64]

PRECISIONS: list[Precision] = [np.float32, np.float64]
in_both_precisions = pytest.mark.parametrize("precision", PRECISIONS)
# Some that probabilities made of small integers hit exactly.
thresholds = st.sampled_from([0, 0.25, 0.5, 0.6, 0.8]) | st.floats(0, 1, exclude_max=True)


@st.composite
def probabilities(draw: st.DrawFn, samples: int = 5, classes: int = 3) -> Array:
    weights = draw(arrays(np.float64, (samples, classes), elements=st.integers(0, 20)))
    assume((weights.sum(axis=1) > 0).all())
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def certain_of_first_by(top: float | np.floating, precision: Precision) -> Tensor:
    return torch.from_numpy(np.array([[top, 1 - top]], dtype=precision))


@given(p=probabilities(), p_perturbed=probabilities(), threshold=thresholds)
@in_both_precisions
def test_stable_is_the_same_label_and_confidence_of_either_view(
    precision: Precision, p: Array, p_perturbed: Array, threshold: float
) -> None:
    p, p_perturbed = p.astype(precision), p_perturbed.astype(precision)
    expected = [
        row.argmax() == perturbed.argmax()
        and max(row.max(), perturbed.max()) > precision(threshold)
        for row, perturbed in zip(p, p_perturbed, strict=True)
    ]
    actual = is_stable(torch.from_numpy(p), torch.from_numpy(p_perturbed), threshold)
    assert actual.tolist() == expected


@given(p=probabilities(), p_perturbed=probabilities(), threshold=thresholds)
def test_stable_does_not_depend_on_which_view_is_called_perturbed(
    p: Array, p_perturbed: Array, threshold: float
) -> None:
    views = torch.from_numpy(p), torch.from_numpy(p_perturbed)
    assert torch.equal(is_stable(*views, threshold), is_stable(*views[::-1], threshold))


@given(threshold=st.floats(0.5, 1, exclude_max=True))
@in_both_precisions
def test_exactly_the_threshold_is_not_confident(precision: Precision, threshold: float) -> None:
    at_threshold = certain_of_first_by(precision(threshold), precision)
    assert not is_stable(at_threshold, at_threshold, threshold).item()


@given(threshold=st.floats(0.5, 0.99))
@in_both_precisions
def test_one_rounding_step_above_the_threshold_is_confident(
    precision: Precision, threshold: float
) -> None:
    barely_above = np.nextafter(precision(threshold), precision(1))
    confident = certain_of_first_by(barely_above, precision)
    unsure = certain_of_first_by(0.5, precision)
    assert is_stable(confident, unsure, threshold).item()
    assert is_stable(unsure, confident, threshold).item()
    assert not is_stable(unsure, unsure, threshold).item()


@given(p=probabilities(), p_perturbed=probabilities())
def test_with_threshold_zero_the_label_alone_decides(p: Array, p_perturbed: Array) -> None:
    same_label = p.argmax(axis=1) == p_perturbed.argmax(axis=1)
    actual = is_stable(torch.from_numpy(p), torch.from_numpy(p_perturbed), threshold=0)
    assert actual.tolist() == same_label.tolist()


@in_both_precisions
def test_just_below_threshold_one_only_certainty_is_confident(precision: Precision) -> None:
    threshold = np.nextafter(precision(1), precision(0))
    certain = certain_of_first_by(1, precision)
    almost_certain = certain_of_first_by(threshold, precision)
    assert is_stable(certain, almost_certain, float(threshold)).item()
    assert not is_stable(almost_certain, almost_certain, float(threshold)).item()


@given(p=probabilities(), p_perturbed=probabilities())
@pytest.mark.parametrize(("precision", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-12)])
def test_instability_is_the_squared_distance_averaged_over_the_classes(
    precision: Precision, tolerance: float, p: Array, p_perturbed: Array
) -> None:
    expected = ((p - p_perturbed) ** 2).sum(axis=1) / 3
    actual = instability(
        torch.from_numpy(p.astype(precision)), torch.from_numpy(p_perturbed.astype(precision))
    )
    assert actual.numpy().dtype == precision
    np.testing.assert_allclose(actual.numpy(), expected, rtol=tolerance, atol=tolerance**2)


class Judged(NamedTuple):
    """What two students think of the same sample."""

    stable: bool
    other_stable: bool
    instability: float
    other_instability: float


# Few values, so that ties are common.
degrees = st.sampled_from([0.0, 0.1, 0.2, 1e-30]) | st.floats(0, 2, width=32)
judged_samples = st.lists(
    st.builds(Judged, st.booleans(), st.booleans(), degrees, degrees), min_size=1, max_size=8
)


def guided(samples: list[Judged]) -> list[bool]:
    columns = [torch.tensor(column) for column in zip(*samples, strict=True)]
    answers: list[bool] = is_guided(*columns).tolist()
    return answers


def seen_by_the_other(sample: Judged) -> Judged:
    return Judged(sample.other_stable, sample.stable, sample.other_instability, sample.instability)


def guided_by_the_three_cases(sample: Judged) -> bool:
    match (sample.stable, sample.other_stable):
        case (False, False):
            return False
        case (True, True):
            return sample.other_instability < sample.instability
        case _:
            return sample.other_stable


@given(samples=judged_samples)
def test_guided_follows_the_three_cases(samples: list[Judged]) -> None:
    assert guided(samples) == [guided_by_the_three_cases(sample) for sample in samples]


@given(samples=judged_samples)
def test_students_never_guide_each_other_on_the_same_sample(samples: list[Judged]) -> None:
    one = guided(samples)
    other = guided([seen_by_the_other(sample) for sample in samples])
    assert not any(a and b for a, b in zip(one, other, strict=True))


@given(degree=degrees)
def test_equal_stability_constrains_neither(degree: float) -> None:
    assert guided([Judged(True, True, degree, degree)]) == [False]


@given(degree=degrees, other_degree=degrees)
def test_a_sample_stable_for_one_student_makes_it_the_guide(
    degree: float, other_degree: float
) -> None:
    assert guided([Judged(False, True, degree, other_degree)]) == [True]
    assert guided([Judged(True, False, degree, other_degree)]) == [False]


@given(degree=degrees, other_degree=degrees)
def test_a_sample_stable_for_neither_constrains_neither(degree: float, other_degree: float) -> None:
    assert guided([Judged(False, False, degree, other_degree)]) == [False]


@given(
    logits=arrays(
        np.float32,
        (4, 3, 3),
        elements=st.sampled_from([0.0, 1.0, 1e4, -1e4, 2.0**100, -(2.0**100)]),
    ),
    threshold=thresholds,
)
def test_extreme_logits_are_judged_without_nan(
    logits: NDArray[np.float32], threshold: float
) -> None:
    p, p_perturbed, q, q_perturbed = torch.from_numpy(logits).softmax(dim=2)
    degree, other_degree = instability(p, p_perturbed), instability(q, q_perturbed)
    assert degree.isfinite().all()
    assert other_degree.isfinite().all()
    stable, other_stable = (
        is_stable(p, p_perturbed, threshold),
        is_stable(q, q_perturbed, threshold),
    )
    one = is_guided(stable, other_stable, degree, other_degree)
    other = is_guided(other_stable, stable, other_degree, degree)
    assert not (one & other).any()
