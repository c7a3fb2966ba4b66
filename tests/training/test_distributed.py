"""Processes that share a run: the same result as one, and the same end."""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from multiprocessing import active_children
from pathlib import Path
from shutil import copytree

import pytest
import torch
from lightning_fabric.utilities.exceptions import MisconfigurationException

from dualstudent import Callback, Recipe, Run, Trainer, UserError, load_trained, resume, train
from dualstudent.errors import UnheardError, WorldError
from dualstudent.methods import METHODS
from dualstudent.processes import find_world
from dualstudent.recipes.schema import DeviceSettings
from dualstudent.signals import Interrupted
from dualstudent.training.distributed import build_fabric, join_team
from tests.support.recipes import small_recipe
from tests.support.runs import RaisesSignalAt, assert_equal_runs
from tests.support.together import make_recipe, make_vectors, train_in_memory, train_together

pytestmark = pytest.mark.slow
ON_CPU = "device.accelerator=cpu"
NAMES = [kind.Settings.model_fields["name"].default for kind in METHODS if kind.steady]


@pytest.fixture(scope="module")
def shared() -> dict[str, dict[str, torch.Tensor]]:
    return train_together(NAMES) | train_together(["shot"])


@pytest.mark.parametrize("method", [*NAMES, "shot"])
def test_two_processes_give_the_result_of_one(
    method: str, shared: dict[str, dict[str, torch.Tensor]]
) -> None:
    alone = train_in_memory(method)
    assert shared[method].keys() == alone.keys()
    # The attack of VAT is a difference of nearly equal numbers.
    accuracy = 1e-3 if method == "vat" else 2e-6
    for name, tensor in alone.items():
        torch.testing.assert_close(shared[method][name], tensor, rtol=accuracy, atol=accuracy)
    with closing(Trainer(make_recipe(method), make_vectors())) as trainer:
        start = trainer.method.state_dict()
    assert any(
        (tensor - start[name]).abs().max() > 1e-3
        for name, tensor in alone.items()
        if name.startswith("students.0")
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of two processes, with batch norm and dropout."""
    threads = torch.get_num_threads()
    run = train(small_recipe(ON_CPU, "device.processes=2"), tmp_path_factory.mktemp("runs") / "run")
    assert find_world() is None
    assert torch.get_num_threads() == threads
    return run


def test_a_shared_run_is_a_run_like_others(whole: Run) -> None:
    assert len(whole.read_metrics()) == 2
    assert whole.page.is_file()
    assert load_trained(whole).fabric.world_size == 1  # to look at it, or export it, takes one


class KillsFollowerAt(Callback):
    def __init__(self, step: int) -> None:
        self._step = step

    def on_step(self, step: int) -> None:
        if step == self._step:
            (follower,) = active_children()
            follower.kill()
            follower.join()


def test_a_shared_run_survives_signals_lost_processes_and_another_number(
    whole: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The signal goes to the leader alone; a follower says nothing and is gone in the end."""
    with pytest.raises(Interrupted, match="SIGUSR1 after step 29"):
        train(whole.read_recipe(), tmp_path / "run", RaisesSignalAt(29, signal.SIGUSR1))
    copytree(tmp_path / "run", tmp_path / "copy")
    with pytest.raises(UserError, match="rank 1 of 2 processes was lost"):
        resume(tmp_path / "run", KillsFollowerAt(40))
    assert active_children() == []
    assert_equal_runs(resume(tmp_path / "run"), whole)

    alone = resume(tmp_path / "copy", processes=1)  # batch norm has the whole batch from here on
    assert alone.read_metrics()[0] == whole.read_metrics()[0]
    assert alone.read_result()["steps"] == whole.read_result()["steps"]
    assert capfd.readouterr() == ("", "")


def test_what_cannot_be_shared_is_refused_and_leaves_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    recipe = small_recipe(ON_CPU, "device.processes=2", "batch.labeled=1")
    with pytest.raises(UserError, match=r"batch\.size = 64 and batch\.labeled = 1 must be"):
        train(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert active_children() == []
    assert capfd.readouterr() == ("", "")


def test_a_batch_that_cannot_be_shared_is_refused_before_others_start() -> None:
    recipe = small_recipe(ON_CPU, "device.processes=7", "batch.labeled=16")
    with pytest.raises(UserError, match=r"7 processes share each batch"):
        join_team(recipe, lambda: pytest.fail("started")).__enter__()


def test_data_from_python_cannot_be_handed_to_other_processes(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="torchrun"):
        Trainer(make_recipe("pi", "device.processes=2"), make_vectors())


def test_batch_norm_cannot_be_synchronized_on_a_cpu() -> None:
    """On GPUs it is untried."""
    with pytest.raises(UserError, match=r"device\.sync_batch_norm .*'cpu'"):
        Trainer(small_recipe(ON_CPU, "device.sync_batch_norm=true"))


def test_fewer_gpus_than_processes_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_few(**_: object) -> None:
        raise MisconfigurationException("You requested gpu: [0, 1] But your machine only has: [0]")

    monkeypatch.setattr("dualstudent.training.distributed.Fabric", too_few)
    world = find_world({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"})
    with pytest.raises(UserError, match=r"'auto' .*device\.processes = 2"):
        build_fabric(DeviceSettings(processes=2), world)


@pytest.mark.parametrize(
    ("sizes", "devices", "nodes"), [(("8", "8"), 8, 1), (("8", "4"), 4, 2), (("8", "1"), 1, 8)]
)
def test_fabric_is_told_of_machines_and_their_gpus(
    sizes: tuple[str, str], devices: int, nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Untried with GPUs: what is handed to Fabric."""
    told: dict[str, object] = {}
    monkeypatch.setattr(
        "dualstudent.training.distributed.Fabric", lambda **every: told.update(every)
    )
    size, local_size = sizes
    world = find_world(
        {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": local_size}
    )
    build_fabric(DeviceSettings(accelerator="cuda", precision="bf16-mixed"), world)
    assert (told["devices"], told["num_nodes"]) == (devices, nodes)
    assert (told["accelerator"], told["precision"]) == ("cuda", "bf16-mixed")


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """As of the first of three processes; nobody listens at the port."""
    for name, value in {
        "RANK": "0",
        "WORLD_SIZE": "3",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
    }.items():
        monkeypatch.setenv(name, value)
    yield monkeypatch
    assert "LOCAL_RANK" not in os.environ


def alone(*changes: str) -> Recipe:
    return make_recipe("dual-student", "batch.labeled=6", "device.start_limit=0.5", *changes)


def test_ranks_that_do_not_come_are_named(environment: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"ranks 1, 2 of 3 .*device\.start_limit = 0\.5 s"):
        join_team(alone(), lambda: None).__enter__()


def test_a_leader_that_cannot_be_reached_is_an_error(
    environment: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Torch, which would print its stack, is not asked before somebody listens."""
    environment.setenv("RANK", "2")
    environment.setenv("MASTER_PORT", "9")  # discard: hardly anybody listens there any more
    with pytest.raises(UnheardError, match=r"rank 2 .*127\.0\.0\.1:9"):
        join_team(alone(), lambda: None).__enter__()
    assert capfd.readouterr() == ("", "")


def test_a_port_that_another_program_has_is_an_error(environment: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        environment.setenv("MASTER_PORT", str(other.getsockname()[1]))
        with pytest.raises(UnheardError, match=r"rank 0 cannot listen at .* free port"):
            join_team(alone(), lambda: None).__enter__()


@pytest.mark.parametrize(
    ("changes", "telling"),
    [
        (("device.nodes=2",), r"device\.nodes = 2 .* started 3"),
        (("device.processes=2", "device.nodes=2"), "is 4, but"),
    ],
)
def test_another_number_than_was_asked_for_is_refused(
    changes: tuple[str, ...], telling: str, environment: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=telling):
        join_team(alone(*changes), lambda: None).__enter__()


def test_several_machines_need_a_launcher() -> None:
    with pytest.raises(UserError, match="torchrun or srun"):
        join_team(alone("device.nodes=2"), lambda: None).__enter__()


@pytest.mark.parametrize(
    "wrong",
    [
        {"RANK": "0"},
        {"RANK": "first", "WORLD_SIZE": "2"},
        {"RANK": "2", "WORLD_SIZE": "2"},
        {"RANK": "0", "WORLD_SIZE": "3", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"},
        {"SLURM_STEP_NUM_TASKS": "2"},
    ],
)
def test_variables_that_make_no_sense_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(WorldError):
        find_world(wrong)
