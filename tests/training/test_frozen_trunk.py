"""A trunk with ``trunk_scale`` 0 keeps weights and statistics, in all networks of a method."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from dualstudent import Recipe, Run, Trainer, resume, train
from dualstudent.doctor import examine
from dualstudent.recipes.reading import validate
from dualstudent.signals import Interrupted
from dualstudent.training.checkpoint import read_tensors
from tests.support.recipes import small_recipe
from tests.support.runs import RaisesSignalAt, assert_equal_runs

STEPS = 29  # of an epoch
FROZEN = "optimizer.trunk_scale=0"
METHODS = {
    "dual-student+mean-teacher": ["ema.decay=0.9"],
    "pi+fastswa": ["method.average_from=1"],
    "vat": ["method.epsilon=1"],
}


def state_of(network: nn.Module, part: str) -> dict[str, Tensor]:
    return {k: v.clone() for k, v in network.get_submodule(part).state_dict().items()}


def assert_equal_states(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


@pytest.mark.parametrize("method", METHODS)
def test_every_network_of_a_method_keeps_the_trunk(method: str) -> None:
    changes = (FROZEN, f"method.name={method}", "optimizer.clip_norm=1.0", *METHODS[method])
    trainer = Trainer(small_recipe(*changes))
    networks = trainer.method.networks | trainer.method.evaluated
    trunks = {name: state_of(each, "trunk") for name, each in networks.items()}
    heads = {name: state_of(each, "heads") for name, each in networks.items()}
    while not trainer.done:
        trainer.advance()
    for name, network in (trainer.method.networks | trainer.method.evaluated).items():
        assert_equal_states(state_of(network, "trunk"), trunks[name])
        moved = state_of(network, "heads")
        assert any(not torch.equal(moved[key], heads[name][key]) for key in moved)
        trunk = network.get_submodule("trunk")
        assert all(p.grad is None for p in trunk.parameters())  # so it counts in no norm


@pytest.mark.parametrize("name", METHODS)
def test_the_doctor_accepts_a_frozen_trunk(name: str) -> None:
    diagnosis = examine(small_recipe(FROZEN, f"method.name={name}", *METHODS[name]), steps=3)
    assert diagnosis.findings == []
    assert all(
        "trunk" not in reach.norms[reach.student] for reach in diagnosis.reach if reach.norms
    )


def frozen_then_fine_tuned() -> Recipe:
    table = small_recipe("schedule.epochs=1", "ema.decay=0.9").model_dump(
        mode="json", exclude_none=True
    )
    frozen = table["optimizer"] | {"trunk_scale": 0.0}
    table["stages"] = [{"name": "heads", "optimizer": frozen}, {"name": "all"}]
    return validate(table, "of a test")


def test_a_later_stage_trains_the_trunk_again() -> None:
    trainer = Trainer(frozen_then_fine_tuned())
    before = state_of(trainer.method.students[0], "trunk")
    for _ in range(STEPS):
        trainer.advance()
    assert_equal_states(state_of(trainer.method.students[0], "trunk"), before)
    trainer.advance()
    after = state_of(trainer.method.students[0], "trunk")
    assert not any(torch.equal(after[k], before[k]) for k in after if k.endswith("original1"))
    assert not any(torch.equal(after[k], before[k]) for k in after if k.endswith("_mean"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(frozen_then_fine_tuned(), tmp_path_factory.mktemp("runs") / "whole")


@pytest.mark.parametrize("step", [13, STEPS, 47])
def test_a_run_with_a_frozen_stage_continues_bit_for_bit(
    step: int, whole: Run, tmp_path: Path
) -> None:
    with pytest.raises(Interrupted):
        train(frozen_then_fine_tuned(), tmp_path / "run", RaisesSignalAt(step))
    assert_equal_runs(resume(tmp_path / "run"), whole)


@pytest.mark.slow
def test_two_processes_keep_the_trunk(tmp_path: Path) -> None:
    recipe = small_recipe(
        FROZEN, "schedule.epochs=1", "device.accelerator=cpu", "device.processes=2"
    )
    run = train(recipe, tmp_path / "run")
    one_process = recipe.device.model_copy(update={"processes": 1})
    initial = Trainer(recipe.model_copy(update={"device": one_process})).method.students[0]
    trained, _ = read_tensors(run.model)
    for name, tensor in initial.state_dict().items():
        kept = torch.equal(trained[f"student1.{name}"], tensor)
        assert kept == name.startswith("trunk"), name
