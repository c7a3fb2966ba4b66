"""Grids on a real Ray cluster of several nodes on this machine, one of which is lost."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from dualstudent import Callback, Run, UserError, ray_cluster
from dualstudent.grid import run_grid
from dualstudent.runs import train
from dualstudent.signals import Interrupted
from tests.support.runs import RaisesSignalAt, assert_equal_runs
from tests.torture.children import tiny_recipe

ray: Any = pytest.importorskip("ray")
pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]  # Ray warns of itself
EPOCHS = 60  # long enough to be seen at work, and stopped, from outside


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without CPUs, so that runs are on the two other nodes, with one each."""
    from ray.cluster_utils import Cluster  # noqa: PLC0415

    os.environ |= {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # other tests may keep the machine busy
    }
    made: Any = Cluster(True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(2):
        made.add_node(num_cpus=1)
    ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


class LosesNode(Callback):
    """Kills a node once each of both runs has begun and has a checkpoint."""

    def __init__(self, cluster: Any, runs: list[Run]) -> None:
        self._cluster, self._runs, self.lost = cluster, runs, False

    def on_step(self, step: int) -> None:
        if not self.lost and all(run.checkpoint.is_file() for run in self._runs):
            self.lost = True
            self._cluster.remove_node(self._cluster.list_all_nodes()[-1], allow_graceful=False)


def test_runs_of_a_lost_node_continue_on_another(cluster: Any, tmp_path: Path) -> None:
    recipes = {
        f"seed-{seed}": tiny_recipe("pi", f"seed={seed}", f"schedule.epochs={EPOCHS}")
        for seed in range(2)
    }
    loses = LosesNode(cluster, [Run(tmp_path / "grid" / name) for name in recipes])
    runs = run_grid(recipes, tmp_path / "grid", loses, on="ray")
    assert loses.lost
    for name, run in runs.items():
        assert_equal_runs(run, train(recipes[name], tmp_path / name))
    assert sorted(path.name for path in (tmp_path / "grid").iterdir()) == sorted(recipes)


def test_a_stopped_grid_continues_and_keeps_what_is_finished(cluster: Any, tmp_path: Path) -> None:
    recipe = tiny_recipe("pi", f"schedule.epochs={EPOCHS}")
    with pytest.raises(Interrupted, match="0 of 1 runs"):
        run_grid({"run": recipe}, tmp_path / "grid", RaisesSignalOnce(), on="ray")
    run = Run(tmp_path / "grid" / "run")
    with run.lock():  # nobody trains it any more
        copytree(run.folder, tmp_path / "copy")
    assert 0 < len(Run(tmp_path / "copy").read_metrics()) < EPOCHS
    finished = run_grid({"run": recipe}, tmp_path / "grid", on="ray")
    stamp = run.result.stat().st_mtime_ns
    assert_equal_runs(finished["run"], train(recipe, tmp_path / "whole"))
    run_grid({"run": recipe}, tmp_path / "grid", on="ray")
    assert run.result.stat().st_mtime_ns == stamp


class RaisesSignalOnce(Callback):
    def __init__(self) -> None:
        self._raises = RaisesSignalAt(0)

    def on_step(self, step: int) -> None:
        if step > 0:
            self._raises.on_step(0)


def test_a_run_that_fails_is_named(cluster: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"bad: data\.labels = 55 "):
        run_grid({"bad": tiny_recipe("pi", "data.labels=55")}, tmp_path, on="ray")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "telling"),
    [("device.processes=9", "big: needs 9 CPUs"), ("device.accelerator=cuda", "and 1 GPUs")],
)
def test_a_cluster_without_the_resources_is_an_error(
    change: str, telling: str, cluster: Any, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=telling):
        run_grid({"big": tiny_recipe("pi", change)}, tmp_path / "grid", on="ray")
    assert not (tmp_path / "grid").exists()


def test_a_machine_that_does_not_see_the_folder_says_so(tmp_path: Path) -> None:
    said = ray_cluster._train("{}", str(tmp_path / "grid" / "run"), str(tmp_path / "grid" / "mark"))
    assert f"does not see {tmp_path / 'grid'}" in said
    assert not any(tmp_path.iterdir())
