"""Runs that torchrun starts, or the user by hand: on two "machines", with losses and restarts."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from dualstudent import Run, resume, train
from dualstudent.recipes.reading import to_toml
from dualstudent.training.checkpoint import read_tensors
from tests.support.elastic import elastic_recipe
from tests.support.together import make_vectors
from tests.torture.children import tiny_recipe

pytestmark = pytest.mark.cluster
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": os.pathsep.join(sys.path)}
MOST_SECONDS = 300


def start(command: Sequence[object], folder: Path, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [str(word) for word in command],
        cwd=folder,
        env=os.environ | LOOPBACK | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, messages = process.communicate(timeout=MOST_SECONDS)
    return process.returncode, out, messages


def find_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The whole run in one process."""
    return train(elastic_recipe(), tmp_path_factory.mktemp("runs") / "alone", data=make_vectors())


def assert_close_runs(run: Run, expected: Run) -> None:
    trained, _ = read_tensors(run.model)
    for name, tensor in read_tensors(expected.model)[0].items():
        torch.testing.assert_close(trained[name], tensor, rtol=1e-5, atol=1e-6)
    assert len(run.read_metrics()) == len(expected.read_metrics())


def test_torchrun_restarts_a_killed_process_and_all_go_on(alone: Run, tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    options = ["--standalone", "--nproc-per-node", 2, "--max-restarts", 1]
    program = ["-m", "tests.support.elastic", run.folder, "kill", 7]  # in the second epoch
    code, _, messages = finish(start([*TORCHRUN, *options, *program], tmp_path))
    assert code == 0, messages
    assert_close_runs(run, alone)


def test_a_program_trains_two_runs_one_after_the_other(alone: Run, tmp_path: Path) -> None:
    """The second meeting does not read what the first one left with the agent of torchrun."""
    program = ["-m", "tests.support.two_runs", tmp_path]
    code, _, messages = finish(
        start([*TORCHRUN, "--standalone", "--nproc-per-node", 2, *program], tmp_path)
    )
    assert code == 0, messages
    for name in ("first", "second"):
        assert_close_runs(Run(tmp_path / name), alone)


def test_a_run_of_two_processes_goes_on_in_one(alone: Run, tmp_path: Path) -> None:
    program = ["-m", "tests.support.elastic", tmp_path / "run", "stop", 5]  # an epoch's end
    code, _, messages = finish(
        start([*TORCHRUN, "--standalone", "--nproc-per-node", 2, *program], tmp_path)
    )
    assert code != 0
    assert messages.count("SIGTERM after step 5") == 1
    assert_close_runs(resume(tmp_path / "run", data=make_vectors()), alone)


def test_two_machines_train_together_and_one_of_them_speaks(tmp_path: Path) -> None:
    """Two agents, each as if on a machine of its own; the same command shows the result again."""
    (tmp_path / "recipe.toml").write_text(to_toml(tiny_recipe()))
    for _ in range(2):
        meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{find_port()}"]
        agent = [*TORCHRUN, "--nnodes", 2, "--nproc-per-node", 1, "--rdzv-id", "7", *meeting]
        command = ["-m", "dualstudent", "train", "recipe.toml", "--out", "run"]
        sizes = ["--set", "device.nodes=2", "--set", "device.accelerator=cpu"]
        machines = [start([*agent, *command, *sizes], tmp_path) for _ in range(2)]
        ends = [finish(machine) for machine in machines]
        assert [code for code, _, _ in ends] == [0, 0], ends
        assert "".join(out for _, out, _ in ends).count("last epoch, test part") == 1
    assert len(Run.open(tmp_path / "run").read_metrics()) == 3


@pytest.mark.parametrize(
    ("change", "folders", "telling"),
    [
        ("seed=5", ("here", "here"), "rank 1 on .* has another recipe than rank 0"),
        ("data.images=nonsense", ("here", "here"), r"rank 1 on .*: data\.images"),
        ("seed=0", ("here", "there"), "rank 1 on .* does not see .*here/run; choose an --out"),
    ],
)
def test_processes_that_do_not_fit_together_end_with_one_line(
    change: str, folders: tuple[str, str], telling: str, tmp_path: Path
) -> None:
    """Started by hand with the four variables, in folders as of machines with their own disks."""
    (tmp_path / "recipe.toml").write_text(to_toml(tiny_recipe()))
    port, processes = find_port(), []
    for rank, name in enumerate(folders):
        (tmp_path / name).mkdir(exist_ok=True)
        command = ["train", "../recipe.toml", "--out", "run", "--set", "device.start_limit=40"]
        changes = ["--set", change] if rank else []
        four = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
        program = [sys.executable, "-m", "dualstudent", *command, *changes]
        processes.append(start(program, tmp_path / name, MASTER_PORT=port, **four))
    (code, out, messages), *others = map(finish, processes)
    assert (code, out) == (2, "")
    assert re.fullmatch(f"error: {telling}.*\n", messages), messages
    assert others == [(2, "", "")]
    assert not list(tmp_path.glob("*/run*"))
