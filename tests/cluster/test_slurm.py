"""Runs on a real SLURM of one machine: srun, a signal, and a job that is requeued."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dualstudent import Run, train
from dualstudent.recipes.reading import to_toml
from tests.support.runs import assert_equal_runs
from tests.torture.children import tiny_recipe

pytestmark = pytest.mark.cluster
PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel", "scontrol", "sinfo")
MOST_SECONDS = 300
SILENT: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmUser=root
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmdSpoolDir={folder}/spool
StateSaveLocation={folder}/state
ReturnToService=2
JobRequeue=1
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=FORCE:4
"""
JOB = """#!/bin/bash
#SBATCH --ntasks=2 --overcommit --requeue --open-mode=append --output={folder}/output.txt
srun --overcommit {python} -m dualstudent train {folder}/recipe.toml --out {folder}/run
if [ $? -eq 138 ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
"""


def find_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + MOST_SECONDS
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a SLURM of its own; skipped without its programs, or unless root."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing or os.geteuid() != 0:
        pytest.skip("needs root, and the Debian packages slurmctld, slurmd, slurm-client and munge")
    folder = tmp_path_factory.mktemp("slurm")
    for name in ("spool", "state"):
        (folder / name).mkdir()
    settings = {"host": socket.gethostname(), "cores": os.cpu_count(), "folder": folder}
    ports = (find_port(), find_port())
    (folder / "slurm.conf").write_text(CONFIGURATION.format(ports=ports, **settings))
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o600)
    files = [f"--{name}={folder}/munge.{name.split('-')[0]}" for name in ("key-file", "socket")]
    logs = [f"--{name}-file={folder}/munge.{name}" for name in ("pid", "log", "seed")]
    environment = os.environ | {
        "SLURM_CONF": str(folder / "slurm.conf"),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": "127.0.0.1",
    }
    daemons = [
        ["munged", "--foreground", "--force", *files, *logs],
        ["slurmctld", "-D"],
        ["slurmd", "-D"],
    ]
    started = []
    try:
        for command in daemons:
            started.append(subprocess.Popen(command, env=environment, **SILENT))
        wait_until(lambda: "idle" in ask(environment, "sinfo"), "SLURM does not start")
        yield environment
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()


def ask(environment: dict[str, str], *command: str) -> str:
    answer = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=MOST_SECONDS, check=False
    )
    return answer.stdout


def test_a_requeued_job_goes_on_by_itself(slurm: dict[str, str], tmp_path: Path) -> None:
    """SIGUSR1 as before the time limit; the result is that of a run without a stop."""
    recipe = tiny_recipe("dual-student", "schedule.epochs=60", "device.accelerator=cpu")
    (tmp_path / "recipe.toml").write_text(to_toml(recipe))
    job = tmp_path / "job.sh"
    job.write_text(JOB.format(folder=tmp_path, python=sys.executable))
    number = ask(slurm, "sbatch", "--parsable", str(job)).strip()
    run = Run(tmp_path / "run")
    wait_until(run.checkpoint.is_file, "the job does not begin")
    ask(slurm, "scancel", "--signal=USR1", number)  # to the processes of srun
    wait_until(run.result.is_file, "the job was not requeued, or does not go on")
    output = (tmp_path / "output.txt").read_text()
    assert output.count("SIGUSR1 after step") == 1, output

    shared = recipe.model_copy(update={"device": recipe.device.model_copy(update={"processes": 2})})
    assert_equal_runs(run, train(shared, tmp_path / "whole"))
