import numpy as np
import pytest
import torch

from dualstudent import Trainer, load_recipe
from dualstudent.generators import seeded_rng
from dualstudent.networks import WhitenedCNN
from dualstudent.networks.whitened_cnn import Whitening

CHANNELS = pytest.mark.parametrize("channels", [1, 3])


def correlated_images(channels: int) -> torch.Tensor:
    with seeded_rng("images", channels):
        coarse = torch.rand(200, channels, 5, 5)
    return torch.nn.functional.interpolate(coarse, 12, mode="bilinear") * 2 - 0.3


@CHANNELS
def test_whitened_patches_have_no_mean_unit_variance_and_no_correlation(channels: int) -> None:
    images = correlated_images(channels)
    layer = Whitening(channels)
    layer.fit(images)
    size = 4 * channels
    found = layer(images).permute(0, 2, 3, 1).reshape(-1, 2 * size).double().numpy()
    patches = np.lib.stride_tricks.sliding_window_view(images.double().numpy(), (2, 2), (2, 3))
    patches = patches.transpose(0, 2, 3, 1, 4, 5).reshape(-1, size)
    variances = np.linalg.eigvalsh(np.cov(patches.T))
    expected = variances / (variances + 5e-3 * variances.mean())
    covariance = np.cov(found[:, :size].T)
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(np.diag(covariance), expected, atol=1e-3)
    np.testing.assert_allclose(covariance, np.diag(np.diag(covariance)), atol=1e-3)
    np.testing.assert_array_equal(found[:, size:], -found[:, :size])


def test_other_brightness_and_contrast_of_all_images_change_nothing() -> None:
    images, layer, other = correlated_images(1), Whitening(1), Whitening(1)
    layer.fit(images)
    other.fit(5 * images - 2)
    torch.testing.assert_close(
        layer(images).abs(), other(5 * images - 2).abs(), atol=1e-3, rtol=1e-3
    )


def test_images_of_one_color_give_finite_filters() -> None:
    layer = Whitening(3)
    layer.fit(torch.full((5, 3, 8, 8), -1.0))
    torch.testing.assert_close(layer(torch.full((1, 3, 8, 8), -1.0)), torch.zeros(1, 24, 7, 7))


def test_convolutions_start_by_passing_on_what_comes_in() -> None:
    network = WhitenedCNN(1, widths=(8, 16))
    images = torch.rand(3, 1, 12, 12)
    whiten, activate, convolve, *_ = network.trunk.children()
    whitened = activate(whiten(images))
    torch.testing.assert_close(convolve(whitened)[:, :8], whitened)


def test_filters_are_fitted_to_the_training_images_and_the_same_for_all_students() -> None:
    changes = ["network.widths=[8, 8]", "data.images=500"]
    trainer = Trainer(load_recipe("demo", changes))
    one, other = (student.state_dict() for student in trainer.method.students)
    reference = Whitening(1)
    (clean,) = trainer.data.train.make_views(torch.arange(500), [None])
    reference.fit(clean)
    for state in (one, other):
        assert torch.equal(state["trunk.0.filters"], reference.filters)
    assert not torch.equal(one["heads.classify.weight"], other["heads.classify.weight"])


def test_the_mirror_image_counts_at_test_only() -> None:
    with seeded_rng("mirror"):
        network = WhitenedCNN(1, 3, (8, 16), mirror_at_test=True)
        images = torch.rand(4, 1, 12, 12)
    plain = WhitenedCNN(1, 3, (8, 16))
    plain.load_state_dict(network.state_dict())
    for each in (network, plain):
        each.eval()
    mean = (plain(images).class_logits + plain(images.flip(3)).class_logits) / 2
    torch.testing.assert_close(network(images).class_logits, mean)
    for each in (network, plain):
        each.train()
    torch.testing.assert_close(network(images).class_logits, plain(images).class_logits)
