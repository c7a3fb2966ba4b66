"""The same recipe and seed give the same weights, whatever else the process has done."""

import pytest
import torch

from dualstudent import Trainer
from dualstudent.methods import METHODS, Method
from tests.torture.children import tiny_recipe


def train_two_epochs(name: str) -> dict[str, torch.Tensor]:
    trainer = Trainer(tiny_recipe(name, "schedule.epochs=2"))
    while not trainer.done:
        trainer.advance()
    return trainer.method.state_dict()


@pytest.mark.parametrize("kind", METHODS, ids=lambda kind: kind.__name__)
def test_every_method_trains_the_same_twice(kind: type[Method]) -> None:
    name = kind.Settings.model_fields["name"].default
    once = train_two_epochs(name)
    torch.manual_seed(1)
    torch.rand(7)  # the global generator is not used
    again = train_two_epochs(name)
    assert once.keys() == again.keys()
    for key, tensor in once.items():
        assert torch.equal(tensor, again[key]), key
