from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from dualstudent import UserError
from dualstudent.batch import Batch, Views
from dualstudent.generators import seeded_rng
from dualstudent.methods import MixMatch, MixMatchSettings
from dualstudent.mixing import draw_shares
from tests.support.linear_student import Array, LinearSoftmax, probabilities
from tests.support.students import Recorder, reached_parts, small_batch, small_network


def points(labels: list[int], second_rows: int, **fields: Any) -> Batch:
    with seeded_rng("two views"):
        views = [torch.randn(rows, 5, dtype=torch.float64) for rows in (len(labels), second_rows)]
    return Batch((views[0], views[1]), torch.tensor(labels), **fields)


def expect(
    labeled: Array, labels: list[int], views: list[Array], seed: int, settings: MixMatchSettings
) -> dict[str, float]:
    """By the definition, sample by sample."""
    w = LinearSoftmax(0).w
    guess = np.mean([probabilities(view @ w.T) for view in views], axis=0)
    sharp = guess ** (1 / settings.temperature)
    sharp /= sharp.sum(axis=1, keepdims=True)
    x = np.concatenate([labeled, *views])
    y = np.concatenate([np.eye(3)[labels], sharp, sharp])
    torch.manual_seed(seed)
    alpha = settings.mixup_alpha
    shares = draw_shares(len(x), alpha).numpy()
    partners = torch.randperm(len(x)).numpy()
    entropies, distances = [], []
    for row, (share, partner) in enumerate(zip(shares, partners, strict=True)):
        own = max(share, 1 - share)
        p = probabilities((own * x[row] + (1 - own) * x[partner])[None] @ w.T)[0]
        target = own * y[row] + (1 - own) * y[partner]
        if row < len(labeled):
            entropies.append(-(target * np.log(p)).sum())
        else:
            distances.append(((target - p) ** 2).mean())
    return {
        "classification": float(np.mean(entropies)),
        "consistency": float(settings.consistency_weight * np.mean(distances)),
    }


def found(batch: Batch, seed: int, settings: MixMatchSettings, ramp: float = 1) -> dict[str, float]:
    torch.manual_seed(seed)
    (loss,) = MixMatch([LinearSoftmax(0)], settings).losses(batch, ramp)
    return {name: term.item() for name, term in loss.terms.items()}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    "settings",
    [
        MixMatchSettings(),
        MixMatchSettings(temperature=1.0, mixup_alpha=2.0, consistency_weight=3.0),
    ],
    ids=["defaults", "others"],
)
def test_terms_are_those_of_the_definition(settings: MixMatchSettings, seed: int) -> None:
    labels = [-1, -1, -1, -1, 0, 2, 1]
    batch = points(labels, second_rows=4)
    first, second = (view.numpy() for view in batch.views)
    expected = expect(first[4:], labels[4:], [first[:4], second], seed, settings)
    assert found(batch, seed, settings) == pytest.approx(expected, rel=1e-5)
    ramped = found(batch, seed, settings, ramp=0.25)
    expected["consistency"] *= 0.25
    assert ramped == pytest.approx(expected, rel=1e-5)


def guess(p: Array, temperature: float) -> Array:
    """The guessed labels in float32 where both views of the samples have the predictions ``p``."""
    student = LinearSoftmax(0, *p.shape).float()
    with torch.no_grad():
        student.weight.copy_(torch.from_numpy(np.log(p)).T)
    method = MixMatch([student], MixMatchSettings(temperature=temperature))
    sharp: Array = method._guess_labels(torch.eye(len(p)).repeat(2, 1)).numpy()
    return sharp


def test_guesses_are_sharpened_by_the_power_of_the_definition() -> None:
    p = np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [1 / 3, 1 / 3, 1 / 3]])
    expected = p**2 / (p**2).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(guess(p, temperature=0.5), expected, rtol=1e-5)


def test_a_small_temperature_makes_labels_of_guesses_and_not_nan() -> None:
    p = np.array([[0.3, 0.25, 0.25, 0.2], [0.4, 0.4, 0.1, 0.1]])  # 0.4 ** 200 is 0 in float32
    expected = np.array([[1, 0, 0, 0], [0.5, 0.5, 0, 0]])
    np.testing.assert_allclose(guess(p, temperature=0.005), expected, atol=1e-4)


def test_if_all_samples_are_labeled_they_are_guessed_as_well() -> None:
    labels, settings = [0, 2, 1], MixMatchSettings()
    batch = points(labels, second_rows=3, unlabeled=torch.ones(3, dtype=torch.bool))
    first, second = (view.numpy() for view in batch.views)
    expected = expect(first, labels, [first, second], 0, settings)
    assert found(batch, 0, settings) == pytest.approx(expected, rel=1e-5)


def test_guessing_has_no_gradient_and_leaves_the_statistics_alone() -> None:
    student = small_network()
    recorder = Recorder(student)
    (loss,) = MixMatch([recorder]).losses(small_batch(), ramp=1.0)
    assert [gradient for _, gradient in recorder.shown] == [False, True]
    assert [len(view) for view, _ in recorder.shown] == [2 * 12, 4 + 2 * 12]
    norms = [module for module in student.modules() if isinstance(module, nn.BatchNorm2d)]
    assert [int(norm.num_batches_tracked or 0) for norm in norms] == [1, 1, 1]
    torch.autograd.backward(loss.total)
    assert reached_parts(student) == {"trunk", "class head"}


def test_two_weak_views_of_unlabeled_samples_are_asked_for() -> None:
    assert MixMatch.views == Views(labeled=("weak",), unlabeled=("weak", "weak"))


def test_a_single_sample_is_refused() -> None:
    with pytest.raises(UserError, match=r"batch\.size"):
        MixMatch([LinearSoftmax(0)]).losses(points([1], second_rows=1), ramp=1.0)
