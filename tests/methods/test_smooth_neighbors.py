import itertools
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from dualstudent import losses, resume, train
from dualstudent.batch import ONE_VIEW, Batch
from dualstudent.generators import seeded_rng
from dualstudent.methods import (
    PiModel,
    PiModelSettings,
    PiSmoothNeighbors,
    PiSmoothNeighborsSettings,
    Task,
    TemporalEnsembling,
    TemporalSmoothNeighbors,
)
from dualstudent.prediction import Prediction
from dualstudent.signals import Interrupted
from tests.support.recipes import small_recipe
from tests.support.runs import RaisesSignalAt, assert_equal_runs
from tests.support.students import reached_parts, small_batch, small_network

# Two neighbors, one other within the margin, one beyond it, and one in the same place as
# another class.
POINTS = [[0.0, 0.0], [0.6, 0.8], [0.0, 0.5], [3.0, 0.0], [3.0, 0.0]]
CLASSES = [0, 0, 1, 1, 2]


def reference(
    points: NDArray[Any], labels: list[int], margin: float, over_features: Any = np.mean
) -> float:
    pairs = []
    for i in range(len(labels)):
        for j in range(i):
            distance = np.sqrt(over_features((points[i] - points[j]) ** 2))
            same = labels[i] == labels[j]
            pairs.append(distance**2 if same else max(0.0, margin - distance) ** 2)
    return float(np.mean(pairs))


@pytest.mark.parametrize("margin", [0.7, 1.0, 4.0])
@pytest.mark.parametrize("average", [True, False])
def test_every_pair_of_the_batch_counts_once(margin: float, average: bool) -> None:
    points = torch.tensor(POINTS, dtype=torch.float64)
    value = losses.neighbors(points, torch.tensor(CLASSES), margin, average).item()
    expected = reference(np.array(POINTS), CLASSES, margin, np.mean if average else np.sum)
    assert value == pytest.approx(expected, rel=1e-12)


def test_toy_batch_by_hand() -> None:
    points, labels = torch.tensor(POINTS[:3]), torch.tensor(CLASSES[:3])
    near, between = 0.5, (0.6**2 + 0.3**2) ** 0.5  # distances to the one of another class
    by_sum = (1.0 + (1 - near) ** 2 + (1 - between) ** 2) / 3
    by_mean = (0.5 + (1 - near / 2**0.5) ** 2 + (1 - between / 2**0.5) ** 2) / 3
    assert losses.neighbors(points, labels).item() == pytest.approx(by_mean, rel=1e-6)
    value = losses.neighbors(points, labels, average_over_features=False).item()
    assert value == pytest.approx(by_sum, rel=1e-6)


def test_more_features_of_the_same_kind_do_not_pull_more() -> None:
    """The weight belongs to the mean over the features: their number must not matter."""
    points, labels = torch.tensor(POINTS), torch.tensor(CLASSES)
    few, many = (losses.neighbors(points.repeat(1, n), labels).item() for n in (1, 50))
    assert many == pytest.approx(few, rel=1e-5)


def test_the_loss_is_that_of_the_authors_program() -> None:
    """It pairs the halves of a batch; over all orders of the batch that is the mean of all pairs.

    emb_loss of train_emb.py: mean over the features, margin on its root, mean over the pairs.
    """
    with seeded_rng("features"):
        points = torch.randn(4, 6, dtype=torch.float64)
    labels, values = np.array([0, 1, 0, 1]), []
    for order in itertools.permutations(range(4)):
        first, second = list(order[:2]), list(order[2:])
        squared = ((points[first] - points[second]) ** 2).numpy().mean(axis=1)
        same = labels[first] == labels[second]
        apart = np.maximum(1.5 - np.sqrt(squared), 0) ** 2
        values.append((same * squared + (1 - same) * apart).mean())
    value = losses.neighbors(points, torch.from_numpy(labels), margin=1.5).item()
    assert value == pytest.approx(np.mean(values), rel=1e-12)


def test_gradient_is_the_numerical_one() -> None:
    with seeded_rng("features"):
        points = torch.randn(9, 3, dtype=torch.float64, requires_grad=True)
    labels = torch.arange(9) % 3
    assert torch.autograd.gradcheck(lambda p: losses.neighbors(p, labels, 2.0), points)
    torch.autograd.backward(losses.neighbors(points, labels, 2.0))
    assert points.grad is not None
    step = 1e-6
    moved = points.detach().numpy().copy()
    moved[4, 1] += step
    up = reference(moved, labels.tolist(), 2.0)
    moved[4, 1] -= 2 * step
    down = reference(moved, labels.tolist(), 2.0)
    assert points.grad[4, 1].item() == pytest.approx((up - down) / (2 * step), rel=1e-6)


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_half_precision_features_are_compared_in_single(precision: torch.dtype) -> None:
    points = torch.tensor(POINTS, dtype=precision, requires_grad=True)
    value = losses.neighbors(points, torch.tensor(CLASSES))
    exact = reference(points.detach().double().numpy(), CLASSES, margin=1)
    assert value.item() == pytest.approx(exact, rel=1e-6)
    torch.autograd.backward(value)
    assert points.grad is not None
    assert points.grad.isfinite().all()


def test_features_in_the_same_place_give_finite_gradient() -> None:
    points = torch.ones(4, 3, requires_grad=True)
    value = losses.neighbors(points, torch.tensor([0, 0, 1, 2]))
    assert value.item() == pytest.approx(5 / 6)  # all but one pair are others, at distance 0
    torch.autograd.backward(value)
    assert points.grad is not None
    assert not points.grad.any()


@pytest.mark.parametrize(
    ("distance", "over_features"), [("mean", np.mean), ("sum", np.sum)], ids=["mean", "sum"]
)
def test_neighbors_have_the_same_true_or_else_target_class(
    distance: Literal["mean", "sum"], over_features: Any
) -> None:
    settings = PiSmoothNeighborsSettings(
        consistency_weight=10, neighbor_weight=0.3, margin=2, neighbor_distance=distance
    )
    method = PiSmoothNeighbors([small_network()], settings)
    points, labels = torch.tensor(POINTS), torch.tensor([0, -1, 1, -1, 2])
    # The targets of the labeled samples contradict their labels, and do not count.
    target = torch.eye(3)[[2, 0, 2, 1, 0]]
    batch = Batch((points, points), labels, labels < 0, torch.arange(5))
    terms = method.terms(Prediction(target, target, points), target, batch, ramp=0.5)
    expected = 0.5 * 10 * 0.3 * reference(np.array(POINTS), CLASSES, 2, over_features)
    assert terms["neighbors"].item() == pytest.approx(expected, rel=1e-6)


def test_the_base_keeps_its_terms_and_the_addition_moves_the_trunk_only() -> None:
    network = small_network()
    (base,) = PiModel([small_network()]).losses(small_batch(), ramp=0.5)
    (loss,) = PiSmoothNeighbors([network]).losses(small_batch(), ramp=0.5)
    assert [*base.terms, "neighbors"] == list(loss.terms)
    for name, term in base.terms.items():
        assert loss.terms[name].item() == term.item()
    torch.autograd.backward(loss.terms["neighbors"])
    assert reached_parts(network) == {"trunk"}


def test_the_settings_are_those_of_the_base_and_three_more() -> None:
    settings = PiSmoothNeighborsSettings(gradient_through="both")
    added = set(PiSmoothNeighborsSettings.model_fields) - set(PiModelSettings.model_fields)
    assert added == {"neighbor_weight", "margin", "neighbor_distance"}
    network = small_network()
    (loss,) = PiSmoothNeighbors([network], settings).losses(small_batch(), ramp=1.0)
    torch.autograd.backward(loss.terms["consistency"])
    assert "class head" in reached_parts(network)


def test_a_sample_without_a_past_is_judged_by_what_the_student_says_now() -> None:
    method = TemporalSmoothNeighbors([small_network()])
    method.begin(Task(2, samples=16, classes=3, image_shape=(1, 4, 4), value_range=1))
    batch = small_batch()
    prediction: Prediction = small_network()(batch.views[0])
    guessed = prediction.consistency_logits.argmax(dim=1)
    labels = torch.where(batch.labels < 0, guessed, batch.labels).tolist()
    (loss,) = method.losses(batch, ramp=1.0)
    expected = 12 * reference(prediction.features.detach().double().numpy(), labels, margin=1)
    assert loss.terms["neighbors"].item() == pytest.approx(expected, rel=1e-5)


def test_temporal_ensembling_remembers_as_without_neighbors() -> None:
    states = []
    for kind in (TemporalEnsembling, TemporalSmoothNeighbors):
        method = kind([small_network()])
        assert method.views == ONE_VIEW
        method.begin(Task(2, samples=16, classes=3, image_shape=(1, 4, 4), value_range=1))
        method.losses(small_batch(), ramp=1.0)
        method.after_epoch(0, [])
        states.append(method.state_dict())
    assert states[0].keys() == states[1].keys()
    for name, value in states[0].items():
        assert torch.equal(value, states[1][name]), name


@pytest.mark.parametrize("name", ["pi+sn", "temporal+sn"])
def test_a_stopped_run_continues_bit_for_bit(name: str, tmp_path: Path) -> None:
    recipe = small_recipe(f"method.name={name!r}")
    whole = train(recipe, tmp_path / "whole")
    with pytest.raises(Interrupted):
        train(recipe, tmp_path / "run", RaisesSignalAt(40))
    assert_equal_runs(resume(tmp_path / "run"), whole)
