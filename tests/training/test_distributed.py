"""Distributed training in real processes equals the same work in one process."""

import os
import signal
from pathlib import Path

import pytest
import torch
from lightning_fabric.utilities.exceptions import MisconfigurationException

from dualstudent import Run, UserError, load_recipe, load_trained, resume, train
from dualstudent.data.batching.loader import BatchLoader
from dualstudent.data.batching.samplers import Shard
from dualstudent.generators import derive_seed
from dualstudent.recipes.schema import DeviceSettings
from dualstudent.signals import Interrupted
from dualstudent.training.checkpoint import read_tensors
from dualstudent.training.distributed import build_fabric
from dualstudent.training.trainer import Trainer
from tests.support.recipes import SMALL, small_recipe
from tests.support.runs import RaisesSignalAt, assert_equal_runs

CHANGES = ("schedule.epochs=1", "device.accelerator=cpu")


def by_hand(*changes: str) -> Trainer:
    """Two shares of every batch, one after the other in one process; gradients averaged."""
    recipe = small_recipe(*CHANGES, *changes)
    trainer = Trainer(recipe)
    shares = [
        BatchLoader(trainer.data, recipe.batch, recipe.seed, shard=Shard(number, 2))
        for number in (0, 1)
    ]
    trainer.method.train()
    for step in range(trainer.schedule.total_steps):
        for number, share in enumerate(shares):
            torch.manual_seed(derive_seed(recipe.seed, "step", step))
            trainer.method.before_step()  # what both shares have in common
            if number:
                torch.manual_seed(derive_seed(recipe.seed, "step", step, number))
            losses = trainer.method.losses(share.batch(step), trainer.schedule.ramp(step))
            torch.autograd.backward(torch.stack([loss.total for loss in losses]).sum() / 2)
        for optimizer in trainer.state.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = trainer.schedule.learning_rate(step)
            optimizer.step()
            optimizer.zero_grad()
    return trainer


def weights(run: Run) -> dict[str, torch.Tensor]:
    return read_tensors(run.model)[0]


@pytest.mark.parametrize("method", ["dual-student", "multiple-student"])
def test_two_processes_train_like_their_shares_one_by_one(method: str, tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    change = f"method.name={method}"
    run = train(small_recipe(*CHANGES, change, "device.processes=2"), tmp_path / "run")

    expected = by_hand(change)
    trained = weights(run)
    for name, student in expected.method.evaluated.items():
        for key, parameter in student.named_parameters():
            torch.testing.assert_close(
                trained[f"{name}.{key}"], parameter.detach(), rtol=1e-5, atol=1e-6
            )
    assert len(run.read_metrics()) == 1
    assert load_trained(run).fabric.world_size == 1  # to look at it, or export it, takes one
    assert "LOCAL_RANK" not in os.environ
    assert torch.get_num_threads() == threads


def test_a_run_on_two_processes_stops_on_sigterm_and_continues_exactly(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The signal goes to the leader alone, and the follower says nothing of it."""
    recipe = small_recipe("device.accelerator=cpu", "device.processes=2")
    whole = train(recipe, tmp_path / "whole")
    capfd.readouterr()
    with pytest.raises(Interrupted, match="SIGTERM after step 40"):
        train(recipe, tmp_path / "parts", RaisesSignalAt(40, signal.SIGTERM))
    assert capfd.readouterr() == ("", "")

    assert_equal_runs(resume(tmp_path / "parts"), whole)


@pytest.mark.parametrize(
    ("changes", "telling"),
    [
        (("batch.size=63", "batch.labeled=16"), r"batch\.size = 63 and batch\.labeled = 16 "),
        (("batch.labeled=15",), r"multiples of device\.processes = 2"),
        (
            ("method.name=temporal", "method.consistency_weight=1"),
            r"method\.name = 'temporal' .*device\.processes = 2",
        ),
    ],
)
def test_what_cannot_be_shared_is_refused_and_leaves_nothing(
    tmp_path: Path, changes: tuple[str, ...], telling: str
) -> None:
    recipe = load_recipe("digits", [*SMALL, *CHANGES, "device.processes=2", *changes])

    with pytest.raises(UserError, match=telling):
        train(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_fewer_gpus_than_processes_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_few(**_: object) -> None:
        raise MisconfigurationException("You requested gpu: [0, 1] But your machine only has: [0]")

    monkeypatch.setattr("dualstudent.training.distributed.Fabric", too_few)
    with pytest.raises(UserError, match=r"'auto' .*device\.processes = 2"):
        build_fabric(DeviceSettings(processes=2))
