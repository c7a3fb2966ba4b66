import hashlib

import numpy as np
import pytest
import torch
from sklearn.preprocessing import StandardScaler

from dualstudent.batch import Policy
from dualstudent.data.features import FeaturePerturbation, FeatureSamples, Standardization
from dualstudent.data.transforms.policy import Draw

ROWS = np.random.default_rng(0).normal(1e6, [0.5, 3.0, 0.0], (5000, 3))


def samples(noise: float = 0.0, dropout: float = 0.0, rows: int = 5000) -> FeatureSamples:
    scale = Standardization.measure(ROWS)
    perturbation = FeaturePerturbation(noise=noise, dropout=dropout)
    return FeatureSamples(scale.apply(ROWS[:rows]), perturbation, scale)


def drawn(seed: int, policy: Policy = "weak") -> Draw:
    return Draw(policy, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64])
def test_features_are_brought_to_one_scale_as_scikit_learn_does_it(kind: type) -> None:
    """Includes a feature far from 0, which single precision would lose, and a constant one."""
    rows: np.ndarray = ROWS.astype(kind)
    expected = StandardScaler().fit_transform(rows.astype(np.float64))
    applied = Standardization.measure(rows).apply(rows)
    assert applied.dtype == torch.float32
    np.testing.assert_allclose(applied.numpy(), expected, atol=1e-5)


def test_new_samples_are_measured_by_the_training_data() -> None:
    scale = Standardization(np.array([1.0, 2.0]), np.array([2.0, 4.0]))
    assert scale.apply(np.array([[3.0, 0.0]])).tolist() == [[1.0, -0.5]]


def test_clean_is_clean_and_every_view_is_drawn_by_its_own_generator() -> None:
    indices = torch.tensor([7, 3])
    vectors = Standardization.measure(ROWS).apply(ROWS)
    clean, one, again, other = samples(noise=0.5, dropout=0.3).make_views(
        indices, [None, drawn(1), drawn(1), drawn(2)]
    )
    assert torch.equal(clean, vectors[indices])
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    unperturbed, _ = samples().make_views(indices, [drawn(1), None])
    assert torch.equal(unperturbed, clean)


def test_strong_views_have_their_own_perturbation() -> None:
    indices = torch.arange(100)
    assert not samples(noise=0.5).has_strong_views

    scale = Standardization.measure(ROWS)
    noise = [FeaturePerturbation(noise=sigma) for sigma in (0.1, 1.0)]
    other = FeatureSamples(scale.apply(ROWS), noise[0], scale, strong=noise[1]).to("cpu")
    assert other.has_strong_views
    clean, weak, strong = other.make_views(indices, [None, drawn(1), drawn(1, "strong")])
    torch.testing.assert_close(strong - clean, 10 * (weak - clean), rtol=0.01, atol=1e-5)


def test_noise_and_missing_features_are_as_strong_as_asked_for() -> None:
    indices = torch.arange(5000)
    clean, noisy = samples(noise=0.5).make_views(indices, [None, drawn(0)])
    assert (noisy - clean).std().item() == pytest.approx(0.5, rel=0.02)
    clean, holed = samples(dropout=0.3).make_views(indices, [None, drawn(0)])
    changing = slice(0, 2)  # the third feature is 0 anyway
    missing = holed[:, changing] == 0
    assert missing.float().mean().item() == pytest.approx(0.3, abs=0.02)
    assert torch.equal(holed[:, changing][~missing], clean[:, changing][~missing])


def test_views_do_not_change_the_samples() -> None:
    held = samples(noise=1.0, dropout=0.5)
    (before,) = held.make_views(torch.arange(5000), [None])
    held.make_views(torch.arange(5000), [drawn(0), drawn(1)])
    (after,) = held.make_views(torch.arange(5000), [None])
    assert torch.equal(before, after)


def test_preprocessing_returns_what_a_model_needs() -> None:
    kept = samples().preprocessing()
    np.testing.assert_allclose(kept["mean"], ROWS.mean(axis=0))
    assert kept["std"][2] == 1


def test_other_samples_have_another_fingerprint() -> None:
    def fingerprint(held: FeatureSamples) -> str:
        digest = hashlib.sha256()
        held.update_digest(digest)
        return digest.hexdigest()

    assert fingerprint(samples()) == fingerprint(samples(noise=1.0)) != fingerprint(samples(rows=9))


def test_features_of_a_trunk_are_centered_and_keep_their_proportions() -> None:
    rows = np.random.default_rng(0).normal([1, -2, 5], [0.5, 3.0, 1.0], (2000, 3))
    scaled = Standardization.measure_jointly(rows).apply(rows).numpy()
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose((scaled**2).mean(), 1, rtol=1e-6)
    ratio = scaled.std(axis=0) / rows.std(axis=0)
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-5)
