import signal
from pathlib import Path

import pytest

from dualstudent import Observer, Run, UserError, train
from dualstudent.grid import run_grid
from dualstudent.interruption import Interrupted
from tests.training.small import small_recipe

RECIPES = {f"seed-{seed}": small_recipe(f"seed={seed}") for seed in range(3)}


EPOCHS = RECIPES["seed-0"].schedule.epochs


class StopsInTheSecondRun(Observer):
    def on_step(self, step: int) -> None:
        if step == EPOCHS + 1:
            signal.raise_signal(signal.SIGTERM)


class Counts(Observer):
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
