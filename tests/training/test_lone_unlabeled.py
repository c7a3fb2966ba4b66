"""Batches with a single unlabeled sample, of which batch norm has no statistics."""

from contextlib import closing

import numpy as np
import pytest
from sklearn.datasets import load_digits

from dualstudent import Recipe, Trainer, UserError, prepare_arrays
from dualstudent.methods import METHODS
from tests.support.together import make_recipe, make_vectors
from tests.torture.children import tiny_recipe

NAMES = [kind.Settings.model_fields["name"].default for kind in METHODS]
LONE = ("batch.size=9", "batch.labeled=8")
BATCH_NORM = 'network.norm="batch"'
REFUSED = {
    "adamatch",
    "fixmatch",
    "flexmatch",
    "freematch",
    "ict",
    "self-ensembling",
    "shot",
    "softmatch",
}


def take_step(trainer: Trainer) -> None:
    """Take the first step, whose losses must be finite."""
    with closing(trainer):
        losses = trainer.take_step(0)
    assert all(loss.total.isfinite() for loss in losses)


@pytest.mark.parametrize("name", NAMES)
def test_batch_norm_of_vectors_learns_or_is_refused_before_training(name: str) -> None:
    recipe = make_recipe(name, *LONE, BATCH_NORM)
    if name not in REFUSED:
        take_step(Trainer(recipe, make_vectors()))
        return
    with pytest.raises(UserError, match=rf"'{name}'.* 2 of them .* not 1;") as refused:
        Trainer(recipe, make_vectors())
    assert "\n" not in str(refused.value)


def of_images(name: str, *changes: str) -> Recipe:
    return tiny_recipe(name, "batch.size=17", "batch.labeled=16", *changes)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_batch_norm_of_feature_maps_learns_from_a_single_image(name: str) -> None:
    recipe = of_images(name)
    assert recipe.network.name == "digits-cnn"
    take_step(Trainer(recipe))


def test_batch_norm_of_feature_maps_by_domain_learns_from_a_single_image() -> None:
    X, y = load_digits(return_X_y=True)
    is_source = np.arange(80) < 40
    known, domain = np.where(is_source, y[:80], -1), np.where(is_source, 1, -1)
    data = prepare_arrays(X[:80].reshape(-1, 8, 8) / 16, known, sample_domain=domain)
    take_step(Trainer(of_images("ict", "network.batch_norm=by-domain"), data))


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_layer_norm_of_vectors_learns_from_a_single_sample(name: str) -> None:
    take_step(Trainer(make_recipe(name, *LONE), make_vectors()))
