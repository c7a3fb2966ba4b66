from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from dualstudent import UserError
from dualstudent.mixing import blend, cutmix, draw_shares, mixup


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make_batch(count: int = 12, channels: int = 3) -> tuple[Tensor, Tensor]:
    generator = seeded(9)
    images = torch.rand(count, channels, 6, 9, generator=generator)
    return images, torch.rand(count, 4, generator=generator).softmax(dim=1)


def redraw(
    count: int, alpha: float, seed: int
) -> tuple[NDArray[np.int64], Tensor, torch.Generator]:
    """What a function draws first: partners and shares, and the generator after it."""
    generator = seeded(seed)
    partners = torch.randperm(count, generator=generator)
    return partners.numpy(), draw_shares(count, alpha, generator), generator


@pytest.mark.parametrize("alpha", [0.2, 0.5, 0.75, 1.0, 4.0])
def test_shares_have_a_beta_distribution(alpha: float) -> None:
    shares = draw_shares(20_000, alpha, seeded()).numpy()
    inside = (shares > 0.01) & (shares < 0.99)  # nearer to 0 and 1, float32 has no finer steps
    beta = stats.beta(alpha, alpha)
    low, high = beta.cdf(0.01), beta.cdf(0.99)
    assert inside.mean() == pytest.approx(high - low, abs=0.02)
    distance = stats.kstest(shares[inside], lambda x: (beta.cdf(x) - low) / (high - low))
    assert distance.pvalue > 0.001
    assert shares.min() >= 0
    assert shares.max() <= 1


@pytest.mark.parametrize("channels", [1, 3])
def test_mixup_is_the_equation(channels: int) -> None:
    images, targets = make_batch(channels=channels)
    mixed, soft = mixup(images, targets, 0.75, seeded(3))
    partners, shares, _ = redraw(12, 0.75, seed=3)
    for row, (partner, share) in enumerate(zip(partners, shares.numpy(), strict=True)):
        x, y = images.numpy(), targets.numpy()
        expected = share * x[row] + (1 - share) * x[partner]
        assert np.allclose(mixed[row], expected, atol=1e-6)
        assert np.allclose(soft[row], share * y[row] + (1 - share) * y[partner], atol=1e-6)


def test_feature_vectors_can_be_mixed() -> None:
    features = torch.rand(5, 7)
    mixed, _ = mixup(features, torch.eye(5), 1.0, seeded())
    partners, shares, _ = redraw(5, 1.0, seed=0)
    assert torch.equal(mixed, blend(features, features[partners], shares))


@pytest.mark.parametrize("channels", [1, 3])
def test_cutmix_pastes_a_box_and_counts_its_pixels(channels: int) -> None:
    images, targets = make_batch(40, channels)
    mixed, soft = cutmix(images, targets, 1.0, seeded(5))
    partners, shares, generator = redraw(40, 1.0, seed=5)
    centers = torch.rand(2, 40, generator=generator).T.tolist()
    for image, (partner, share, (row, column)) in enumerate(
        zip(partners, shares.tolist(), centers, strict=True)
    ):
        expected, pasted = images[image].clone(), 0
        side = (1 - share) ** 0.5
        for y, x in np.ndindex(6, 9):
            if abs(y + 0.5 - 6 * row) < 6 * side / 2 and abs(x + 0.5 - 9 * column) < 9 * side / 2:
                expected[:, y, x] = images[partner, :, y, x]
                pasted += 1
        assert torch.equal(mixed[image], expected)
        target = (1 - pasted / 54) * targets[image] + pasted / 54 * targets[partner]
        assert torch.allclose(soft[image], target, atol=1e-6)


def test_gradients_reach_both_of_a_pair() -> None:
    images, targets = make_batch()
    images.requires_grad_()
    mixed, _ = mixup(images, targets, 0.75, seeded(1))
    torch.autograd.backward(mixed.sum())
    partners, shares, _ = redraw(12, 0.75, seed=1)
    expected = shares.clone().index_add(0, torch.from_numpy(partners), 1 - shares)
    assert images.grad is not None
    assert torch.allclose(images.grad[:, 0, 0, 0], expected, atol=1e-6)


@pytest.mark.parametrize("function", [mixup, cutmix])
def test_the_generator_decides_everything_and_the_batch_is_left_as_it_is(
    function: Callable[[Tensor, Tensor, float, torch.Generator], tuple[Tensor, Tensor]],
) -> None:
    images, targets = make_batch()
    before = images.clone()
    first, again, other = (function(images, targets, 1.0, seeded(s))[0] for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(images, before)


@pytest.mark.parametrize(
    ("alpha", "targets", "message"),
    [
        (0.0, torch.eye(4), "alpha = 0.0"),
        (-1.0, torch.eye(4), "alpha = -1.0"),
        (1.0, torch.arange(4), r"one_hot\(labels, classes\)"),
        (1.0, torch.eye(3), r"probabilities \(4, classes\)"),
    ],
)
@pytest.mark.parametrize("mix", [mixup, cutmix])
def test_what_cannot_be_mixed_is_named(
    mix: Callable[..., object], alpha: float, targets: Tensor, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        mix(torch.rand(4, 1, 8, 8), targets, alpha, seeded())


def test_vectors_have_no_box_to_cut() -> None:
    with pytest.raises(UserError, match=r"images .*not a tensor \(4, 8\)"):
        cutmix(torch.rand(4, 8), torch.eye(4), 1.0, seeded())
