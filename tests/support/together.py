"""Methods that are trained in memory, by one process or by several that share each batch."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from sklearn.datasets import load_digits
from torch import Tensor

from dualstudent import FeaturePerturbation, PreparedData, Recipe, Trainer, prepare_arrays
from dualstudent.training.distributed import Team, join_team
from tests.torture.children import tiny_recipe

_NETWORK = 'network={name="mlp", hidden=[24], norm="layer", dropout=0.0}'
_STRONG = 'method.strong_network={name="mlp", hidden=[32], norm="layer", dropout=0.0}'


def make_vectors() -> PreparedData:
    """The pixels of 80 digits as vectors; every fourth has a label."""
    X, y = load_digits(return_X_y=True)
    known = np.where(np.arange(80) % 4 == 0, y[:80], -1)
    return prepare_arrays(
        X[:80],
        known,
        perturbation=FeaturePerturbation(noise=0.3, dropout=0.1),
        strong_perturbation=FeaturePerturbation(noise=0.8),
    )


def make_recipe(method: str, *changes: str) -> Recipe:
    """Two epochs of five steps, without batch norm and dropout."""
    strong = [_STRONG] if method == "imbalanced-student" else []
    batch = ["schedule.epochs=2", "batch.size=24", "batch.labeled=8"]
    return tiny_recipe(method, _NETWORK, *batch, *strong, *changes)


def train_in_memory(method: str, team: Team | None = None) -> dict[str, Tensor]:
    """Return the state of the method after the last step."""
    trainer = Trainer(make_recipe(method), make_vectors(), team=team)
    while not trainer.done:
        trainer.advance()
    return {name: tensor.clone() for name, tensor in trainer.method.state_dict().items()}


def train_together(methods: Sequence[str]) -> dict[str, dict[str, Tensor]]:
    """Train one method after the other in two processes, of which this one leads."""
    recipe = make_recipe(methods[0], "device.processes=2", "device.accelerator=cpu")
    with join_team(recipe, partial(train_together, methods)) as team:
        return {method: train_in_memory(method, team) for method in methods}
