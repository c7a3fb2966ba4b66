from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from torch import Tensor

from dualstudent import losses

Array = NDArray[np.float64]

SAMPLES, CLASSES = 6, 4
LABELS = np.array([-1, 2, -1, 0, 3, -1])
LABELED = [1, 3, 4]
NOTHING_LABELED = torch.full((SAMPLES,), -1)

in_both_precisions = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)]
)
by_either_distance = pytest.mark.parametrize("distance", [losses.mse, losses.kl])


def random_logits(seed: int) -> Array:
    return np.random.default_rng(seed).normal(scale=2, size=(SAMPLES, CLASSES))


def log_softmax(logits: Array) -> Array:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def softmax(logits: Array) -> Array:
    return np.asarray(np.exp(log_softmax(logits)))


LOGITS, OTHER_LOGITS = random_logits(seed=1), random_logits(seed=2)
TARGET = softmax(random_logits(seed=3))


def leaf(values: Array, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor(values, dtype=dtype, requires_grad=True)


def assert_value(actual: Tensor, expected: Any, tolerance: float, dtype: torch.dtype) -> None:
    assert actual.dtype == dtype
    np.testing.assert_allclose(actual.detach().numpy(), expected, rtol=tolerance)


@in_both_precisions
def test_squared_distance_averages_over_the_classes(dtype: torch.dtype, tolerance: float) -> None:
    p, q = softmax(LOGITS), TARGET
    expected = ((p - q) ** 2).sum(axis=1) / CLASSES
    actual = losses.squared_distance(leaf(p, dtype), leaf(q, dtype))
    assert_value(actual, expected, tolerance, dtype)


def test_squared_distance_is_largest_between_opposite_certainties() -> None:
    p, q = torch.eye(CLASSES)[:1], torch.eye(CLASSES)[1:2]
    assert losses.squared_distance(p, q).item() == 2 / CLASSES


@in_both_precisions
def test_mse_measures_probabilities(dtype: torch.dtype, tolerance: float) -> None:
    expected = ((softmax(LOGITS) - TARGET) ** 2).sum(axis=1) / CLASSES
    actual = losses.mse(leaf(LOGITS, dtype), leaf(TARGET, dtype))
    assert_value(actual, expected, tolerance, dtype)


@in_both_precisions
def test_kl_is_the_divergence_of_the_prediction_from_the_target(
    dtype: torch.dtype, tolerance: float
) -> None:
    expected = (TARGET * (np.log(TARGET) - log_softmax(LOGITS))).sum(axis=1)
    actual = losses.kl(leaf(LOGITS, dtype), leaf(TARGET, dtype))
    assert_value(actual, expected, tolerance, dtype)


def test_kl_to_a_certain_target_is_the_cross_entropy() -> None:
    certain = np.eye(CLASSES)[[0, 1, 2, 3, 0, 1]]
    expected = -(certain * log_softmax(LOGITS)).sum(axis=1)
    assert_value(losses.kl(leaf(LOGITS), leaf(certain)), expected, 1e-12, torch.float64)


@in_both_precisions
@pytest.mark.parametrize(("average_over_batch", "divisor"), [(True, SAMPLES), (False, 3)])
def test_classification_is_the_cross_entropy_of_the_labeled_samples(
    dtype: torch.dtype, tolerance: float, average_over_batch: bool, divisor: int
) -> None:
    expected = -log_softmax(LOGITS)[LABELED, LABELS[LABELED]].sum() / divisor
    actual = losses.classification(
        leaf(LOGITS, dtype), torch.from_numpy(LABELS), average_over_batch
    )
    assert_value(actual, expected, tolerance, dtype)


def test_classification_averages_over_the_batch_unless_told_otherwise() -> None:
    logits, labels = leaf(LOGITS), torch.from_numpy(LABELS)
    assert torch.equal(
        losses.classification(logits, labels),
        losses.classification(logits, labels, average_over_batch=True),
    )


@pytest.mark.parametrize("average_over_batch", [True, False])
def test_classification_of_nothing_labeled_is_zero_and_moves_nothing(
    average_over_batch: bool,
) -> None:
    logits = leaf(LOGITS)
    loss = losses.classification(logits, NOTHING_LABELED, average_over_batch)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.item() == 0
    assert torch.equal(gradient, torch.zeros_like(logits))


def test_unlabeled_samples_get_no_gradient_from_classification() -> None:
    logits = leaf(LOGITS)
    loss = losses.classification(logits, torch.from_numpy(LABELS))
    (gradient,) = torch.autograd.grad(loss, logits)
    assert gradient.any(dim=1).tolist() == [label >= 0 for label in LABELS]


@in_both_precisions
def test_consistency_is_the_mean_over_all_samples(dtype: torch.dtype, tolerance: float) -> None:
    logits, target = leaf(LOGITS, dtype), leaf(TARGET, dtype)
    squared = ((softmax(LOGITS) - TARGET) ** 2).mean()
    divergence = (TARGET * (np.log(TARGET) - log_softmax(LOGITS))).sum() / SAMPLES
    assert_value(losses.consistency(logits, target), squared, tolerance, dtype)
    assert_value(losses.consistency(logits, target, losses.kl), divergence, tolerance, dtype)


@in_both_precisions
def test_stabilization_sums_the_guided_and_divides_by_the_batch(
    dtype: torch.dtype, tolerance: float
) -> None:
    distance = ((softmax(LOGITS) - TARGET) ** 2).mean(axis=1)
    guided = torch.tensor([True, False, False, True, True, False])
    expected = (distance[0] + distance[3] + distance[4]) / SAMPLES
    assert_value(losses.stabilization(leaf(distance, dtype), guided), expected, tolerance, dtype)


def test_stabilization_moves_the_guided_samples_only() -> None:
    logits, guided = leaf(LOGITS), torch.tensor([True, False, False, True, True, False])
    loss = losses.stabilization(losses.mse(logits, leaf(TARGET)), guided)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert torch.equal(gradient.any(dim=1), guided)


@in_both_precisions
def test_logit_distance_averages_over_samples_and_classes(
    dtype: torch.dtype, tolerance: float
) -> None:
    expected = ((LOGITS - OTHER_LOGITS) ** 2).sum() / (SAMPLES * CLASSES)
    actual = losses.logit_distance(leaf(LOGITS, dtype), leaf(OTHER_LOGITS, dtype))
    assert_value(actual, expected, tolerance, dtype)


def test_logit_distance_pulls_both_heads_towards_each_other() -> None:
    heads = leaf(LOGITS), leaf(OTHER_LOGITS)
    class_gradient, consistency_gradient = torch.autograd.grad(losses.logit_distance(*heads), heads)
    expected = 2 * (LOGITS - OTHER_LOGITS) / LOGITS.size
    np.testing.assert_allclose(class_gradient.numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(consistency_gradient.numpy(), -expected, rtol=1e-12)


@pytest.mark.parametrize(
    "loss",
    [
        lambda logits: losses.mse(logits, torch.from_numpy(TARGET)),
        lambda logits: losses.kl(logits, torch.from_numpy(TARGET)),
        lambda logits: losses.consistency(logits, torch.from_numpy(TARGET), losses.mse),
        lambda logits: losses.consistency(logits, torch.from_numpy(TARGET), losses.kl),
        lambda logits: losses.classification(logits, torch.from_numpy(LABELS), True),
        lambda logits: losses.classification(logits, torch.from_numpy(LABELS), False),
        lambda logits: losses.stabilization(
            losses.mse(logits, torch.from_numpy(TARGET)), torch.from_numpy(LABELS < 0)
        ),
    ],
    ids=[
        "mse",
        "kl",
        "consistency by mse",
        "consistency by kl",
        "classification over the batch",
        "classification over the labeled",
        "stabilization",
    ],
)
def test_gradient_is_the_slope(loss: Callable[[Tensor], Tensor]) -> None:
    assert torch.autograd.gradcheck(loss, leaf(LOGITS))


@pytest.mark.parametrize("distance", [losses.squared_distance, losses.logit_distance])
def test_gradient_is_the_slope_in_both_arguments(distance: losses.Distance) -> None:
    assert torch.autograd.gradcheck(distance, (leaf(LOGITS), leaf(OTHER_LOGITS)))


@by_either_distance
def test_targets_receive_no_gradient(distance: losses.Distance) -> None:
    logits, target = leaf(LOGITS), leaf(TARGET)
    torch.autograd.backward(losses.consistency(logits, target, distance))
    assert target.grad is None
    assert logits.grad is not None
    assert logits.grad.all()


@by_either_distance
def test_distance_of_a_prediction_from_itself_is_zero(distance: losses.Distance) -> None:
    logits = leaf(LOGITS)
    own = logits.softmax(dim=1)
    torch.testing.assert_close(
        distance(logits, own), torch.zeros(SAMPLES, dtype=torch.float64), rtol=0, atol=1e-15
    )


def extreme_logits(largest: float) -> st.SearchStrategy[Array]:
    values = [0.0, 1.0, 1e4, -1e4, largest, -largest]
    return arrays(np.float64, (SAMPLES, CLASSES), elements=st.sampled_from(values))


def assert_finite_with_gradients(loss: Tensor, *inputs: Tensor) -> None:
    assert loss.isfinite().all()
    for gradient in torch.autograd.grad(loss, inputs):
        assert gradient.isfinite().all()


@given(logits=extreme_logits(1e30), target=extreme_logits(1e30))
@by_either_distance
def test_distances_stay_finite_at_extreme_logits(
    distance: losses.Distance, logits: Array, target: Array
) -> None:
    moving = leaf(logits, torch.float32)
    constant = torch.tensor(target, dtype=torch.float32).softmax(dim=1)
    assert_finite_with_gradients(losses.consistency(moving, constant, distance), moving)
    guided = torch.ones(SAMPLES, dtype=torch.bool)
    assert_finite_with_gradients(losses.stabilization(distance(moving, constant), guided), moving)


@given(
    logits=extreme_logits(1e30),
    labels=arrays(np.int64, SAMPLES, elements=st.integers(-1, CLASSES - 1)),
    average_over_batch=st.booleans(),
)
def test_classification_stays_finite_at_extreme_logits(
    logits: Array, labels: NDArray[np.int64], average_over_batch: bool
) -> None:
    moving = leaf(logits, torch.float32)
    loss = losses.classification(moving, torch.from_numpy(labels), average_over_batch)
    assert_finite_with_gradients(loss, moving)


# The square of 1e30 is beyond float32; that of 1e18 is not.
@given(class_logits=extreme_logits(1e18), consistency_logits=extreme_logits(1e18))
def test_logit_distance_stays_finite_at_extreme_logits(
    class_logits: Array, consistency_logits: Array
) -> None:
    heads = leaf(class_logits, torch.float32), leaf(consistency_logits, torch.float32)
    assert_finite_with_gradients(losses.logit_distance(*heads), *heads)
