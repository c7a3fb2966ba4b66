import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dualstudent import Callback, Run, UserError, train
from dualstudent.grid import run_grid
from dualstudent.signals import Interrupted
from tests.support.recipes import small_recipe

RECIPES = {f"seed-{seed}": small_recipe(f"seed={seed}") for seed in range(3)}


EPOCHS = RECIPES["seed-0"].schedule.epochs


class StopsInTheSecondRun(Callback):
    def on_step(self, step: int) -> None:
        if step == EPOCHS + 1:
            signal.raise_signal(signal.SIGTERM)


class Counts(Callback):
    def __init__(self) -> None:
        self.seen: list[int] = []

    def on_start(self, step: int, total: int) -> None:
        self.seen.append(step)

    def on_step(self, step: int) -> None:
        self.seen.append(step)


def test_an_interrupted_grid_continues_and_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        run_grid(RECIPES, tmp_path / "grid", StopsInTheSecondRun(), workers=1)
    finished = [n for n in RECIPES if (tmp_path / "grid" / n / "result.json").is_file()]
    assert 0 < len(finished) < len(RECIPES)
    stamps = {n: (tmp_path / "grid" / n / "result.json").stat().st_mtime_ns for n in finished}
    counts = Counts()
    runs = run_grid(RECIPES, tmp_path / "grid", counts)
    assert counts.seen[0] == EPOCHS * len(finished)
    assert EPOCHS * len(finished) + 1 in counts.seen  # the begun run was not begun again
    assert counts.seen == sorted(counts.seen)
    assert counts.seen[-1] == EPOCHS * len(RECIPES)
    for name, stamp in stamps.items():
        assert runs[name].result.stat().st_mtime_ns == stamp
    whole = run_grid(RECIPES, tmp_path / "whole", workers=1)
    for name, run in runs.items():
        assert run.metrics.read_bytes() == whole[name].metrics.read_bytes()


def test_a_run_that_cannot_be_done_is_named(tmp_path: Path) -> None:
    recipes = {"good": small_recipe(), "bad": small_recipe("data.labels=55")}
    with pytest.raises(UserError, match=r"bad: data\.labels = 55 cannot be balanced"):
        run_grid(recipes, tmp_path)
    assert not (tmp_path / "bad").exists()


def test_a_finished_run_of_another_recipe_is_not_taken_for_this_one(tmp_path: Path) -> None:
    train(RECIPES["seed-0"], tmp_path / "seed-0")
    with pytest.raises(UserError, match="another recipe"):
        run_grid({"seed-0": RECIPES["seed-1"]}, tmp_path)


def test_a_description_does_not_make_another_run(tmp_path: Path) -> None:
    described = small_recipe("description=the same in other words")
    train(described, tmp_path / "seed-0")
    before = (tmp_path / "seed-0" / "result.json").stat().st_mtime_ns
    runs = run_grid({"seed-0": RECIPES["seed-0"]}, tmp_path)
    assert runs["seed-0"].result.stat().st_mtime_ns == before
    assert not described.defines_same_run_as(small_recipe("seed=1"))


def test_an_empty_or_finished_grid_starts_nothing(tmp_path: Path) -> None:
    assert run_grid({}, tmp_path) == {}
    train(RECIPES["seed-0"], tmp_path / "seed-0")
    runs = run_grid({"seed-0": RECIPES["seed-0"]}, tmp_path, workers=1)
    assert runs == {"seed-0": Run(tmp_path / "seed-0")}


PROGRAM = """
import signal, sys
from pathlib import Path
from dualstudent.grid import run_grid
from tests.support.recipes import small_recipe
if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever the tests were started with
    recipe = small_recipe("schedule.epochs=10000", "evaluation.every=1000")
    run_grid({"long": recipe}, Path(sys.argv[1]), workers=1)
"""


def wait_until(true: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not after {seconds} s"
        os.sched_yield()


def is_free(run: Run) -> bool:
    """Nobody trains it: a run is reserved by the process that does, until that has ended."""
    try:
        with run.reserved():
            return True
    except UserError:
        return False


@pytest.fixture
def long_grid(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A grid of one run that would take hours, in its first epochs."""
    (tmp_path / "program.py").write_text(PROGRAM)
    parent = subprocess.Popen(
        [sys.executable, tmp_path / "program.py", tmp_path / "grid"],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
        stderr=subprocess.DEVNULL,
    )
    metrics = Run(tmp_path / "grid" / "long").metrics
    wait_until(lambda: metrics.is_file() and metrics.stat().st_size > 0)
    yield parent
    parent.kill()
    parent.wait()


@pytest.mark.parametrize("numbers", [[signal.SIGKILL], [signal.SIGHUP, signal.SIGHUP]])
def test_a_run_ends_with_the_grid_that_began_it(
    long_grid: subprocess.Popen[bytes], numbers: list[int], tmp_path: Path
) -> None:
    run = Run(tmp_path / "grid" / "long")
    assert not run.checkpoint.is_file()
    for number in numbers:  # a closing terminal sends two
        long_grid.send_signal(number)
    long_grid.wait(timeout=60)
    wait_until(lambda: is_free(run))
    assert run.checkpoint.is_file()
    assert not run.result.is_file()


def test_a_failing_disk_is_told_with_the_run_that_met_it(tmp_path: Path) -> None:
    (tmp_path / "seed-0").write_text("a file where a folder should be")
    with pytest.raises(UserError, match=r"seed-0: .*Not a directory"):
        run_grid({"seed-0": RECIPES["seed-0"]}, tmp_path, workers=1)
