"""Trains methods in memory, in one process or as one of several that share each batch."""

import numpy as np
from sklearn.datasets import load_digits
from torch import Tensor

from dualstudent import FeaturePerturbation, PreparedData, Recipe, Trainer, prepare_arrays
from dualstudent.methods import METHODS
from dualstudent.training.distributed import Team, join_team
from tests.torture.children import tiny_recipe

NAMES = [kind.Settings.model_fields["name"].default for kind in METHODS]
_NETWORK = 'network={name="mlp", hidden=[24], norm="layer", dropout=0.0}'
_STRONG = 'method.strong_network={name="mlp", hidden=[32], norm="layer", dropout=0.0}'


def make_data() -> PreparedData:
    """The pixels of 120 digits as vectors; every fourth has a label."""
    X, y = load_digits(return_X_y=True)
    known = np.where(np.arange(120) % 4 == 0, y[:120], -1)
    return prepare_arrays(
        X[:120],
        known,
        perturbation=FeaturePerturbation(noise=0.3, dropout=0.1),
        strong_perturbation=FeaturePerturbation(noise=0.8),
    )


def make_recipe(method: str, *changes: str) -> Recipe:
    """Two epochs without batch norm and dropout, whose results depend on what shares a batch."""
    strong = [_STRONG] if method == "imbalanced-student" else []
    settings = ["schedule.epochs=2", "batch.size=24", "batch.labeled=8", *strong, *changes]
    return tiny_recipe(method, _NETWORK, *settings)


def train_in_memory(recipe: Recipe, team: Team | None = None) -> dict[str, Tensor]:
    """The state of the method after the last step, and the last losses."""
    trainer = Trainer(recipe, make_data(), team=team)
    record = None
    while not trainer.done:
        record = trainer.advance() or record
    assert record is not None
    state = {f"method/{key}": value.clone() for key, value in trainer.method.state_dict().items()}
    assert trainer.state.terms
    return state


def train_together(method: str) -> dict[str, Tensor]:
    """Train in two processes; to be called in the leader."""
    raise NotImplementedError
