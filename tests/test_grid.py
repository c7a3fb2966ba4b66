import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing import active_children
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import pytest

from dualstudent import Callback, DataSettings, PreparedData, Recipe, Run, UserError, prepare
from dualstudent.data.images.cache import DecodedImages, decode_images
from dualstudent.grid import run_grid
from dualstudent.recipes.own_images import locate_images, use_own_images
from dualstudent.runs import train
from dualstudent.signals import Interrupted
from dualstudent.training.checkpoint import read_checkpoint
from dualstudent.trunks.trunk import FrozenTrunk
from tests.support.digit_files import write_digits
from tests.support.own_code import write_code
from tests.support.recipes import SMALL, small_recipe
from tests.support.runs import assert_equal_runs
from tests.support.trunk_weights import save_weights

RECIPES = {f"seed-{seed}": small_recipe(f"seed={seed}") for seed in range(2)}
EPOCHS = RECIPES["seed-0"].schedule.epochs
STEPS = 29  # of an epoch


class Counts(Callback):
    def __init__(self) -> None:
        self.seen: list[int] = []

    def on_start(self, step: int, total: int) -> None:
        self.seen.append(step)

    def on_step(self, step: int) -> None:
        self.seen.append(step)


class StopsAfterRun(Callback):
    """Stops the grid when it has done the epochs of one run, and maybe more."""

    def on_step(self, step: int) -> None:
        if step >= EPOCHS:
            signal.raise_signal(signal.SIGTERM)


@pytest.mark.slow
def test_an_interrupted_grid_continues_and_equals_an_uninterrupted_one(
    small_run: Run, tmp_path: Path
) -> None:
    with pytest.raises(Interrupted):
        run_grid(RECIPES, tmp_path / "grid", StopsAfterRun(), workers=1)
    finished = [n for n in RECIPES if (tmp_path / "grid" / n / "result.json").is_file()]
    assert 0 < len(finished) < len(RECIPES)
    stamps = {n: (tmp_path / "grid" / n / "result.json").stat().st_mtime_ns for n in finished}
    counts = Counts()
    runs = run_grid(RECIPES, tmp_path / "grid", counts)
    assert EPOCHS * len(finished) <= counts.seen[0] < EPOCHS * len(RECIPES)
    assert counts.seen == sorted(counts.seen)
    assert counts.seen[-1] == EPOCHS * len(RECIPES)
    for name, stamp in stamps.items():
        assert runs[name].result.stat().st_mtime_ns == stamp
    assert_equal_runs(runs["seed-0"], small_run)
    assert_equal_runs(runs["seed-1"], train(RECIPES["seed-1"], tmp_path / "whole"))


def test_a_run_that_cannot_be_done_is_named(tmp_path: Path) -> None:
    recipes = {"bad": small_recipe("data.labels=55")}
    with pytest.raises(UserError, match=r"^bad: data\.labels = 55 "):
        run_grid(recipes, tmp_path)
    assert not (tmp_path / "bad").exists()


@pytest.mark.slow
def test_a_training_that_diverges_does_not_cost_the_other_runs(
    small_run: Run, tmp_path: Path
) -> None:
    diverges = small_recipe("optimizer.learning_rate=1e30")
    recipes = {"diverges": diverges, "good": RECIPES["seed-0"]}
    with pytest.raises(UserError, match=r"^1 of 2 runs failed, 1 finished: diverges: .*finite"):
        run_grid(recipes, tmp_path, workers=1)
    assert_equal_runs(Run(tmp_path / "good"), small_run)


@pytest.mark.slow
def test_an_error_that_nobody_expected_does_not_cost_the_other_runs(
    small_run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Where it happened is on the standard error."""
    monkeypatch.syspath_prepend(tmp_path)
    fails = small_recipe(f"method.name={write_code(tmp_path, 'own_failing')}:Fails")
    recipes = {"fails": fails, "good": RECIPES["seed-0"]}
    with pytest.raises(UserError, match=r"1 finished: fails: RuntimeError: .* allocate 20 GiB$"):
        run_grid(recipes, tmp_path, workers=1)
    assert "in losses" in capfd.readouterr().err
    assert_equal_runs(Run(tmp_path / "good"), small_run)


def test_a_finished_run_of_another_recipe_is_not_taken_for_this_one(
    small_run: Run, tmp_path: Path
) -> None:
    copytree(small_run.folder, tmp_path / "seed-0")
    with pytest.raises(UserError, match="another recipe"):
        run_grid({"seed-0": RECIPES["seed-1"]}, tmp_path)


def test_a_description_does_not_make_another_run(small_run: Run, tmp_path: Path) -> None:
    described = small_recipe("description=the same in other words")
    copytree(small_run.folder, tmp_path / "seed-0")
    before = (tmp_path / "seed-0" / "result.json").stat().st_mtime_ns
    runs = run_grid({"seed-0": described}, tmp_path)
    assert runs["seed-0"].result.stat().st_mtime_ns == before
    assert not described.defines_same_run_as(small_recipe("seed=1"))


def test_an_empty_or_finished_grid_starts_nothing(small_run: Run, tmp_path: Path) -> None:
    assert run_grid({}, tmp_path) == {}
    copytree(small_run.folder, tmp_path / "seed-0")
    runs = run_grid({"seed-0": RECIPES["seed-0"]}, tmp_path, workers=1)
    assert runs == {"seed-0": Run(tmp_path / "seed-0")}


def own_recipes(folder: Path) -> dict[str, Recipe]:
    """Two initial states of one draw of labels, and one of another."""
    where = locate_images(folder)
    changes = [each for each in SMALL if not each.startswith("data.source")]
    changes += ["schedule.epochs=1", "schedule.rampup_epochs=0", "data.labels=20"]
    seeds = {"a": (0, 0), "b": (0, 1), "c": (1, 0)}
    return {
        name: use_own_images("digits", where, [*changes, f"data.split_seed={draw}", f"seed={seed}"])
        for name, (draw, seed) in seeds.items()
    }


@pytest.fixture
def own_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Own images, and a grid of finished runs on them."""
    monkeypatch.setenv("DUALSTUDENT_CACHE", str(tmp_path / "cache"))
    digits = write_digits(tmp_path / "digits", labeled=3, unlabeled=40, test=20)
    for name, recipe in own_recipes(digits).items():
        train(recipe, tmp_path / "grid" / name)
    return digits


def swap(one: Path, other: Path) -> None:
    """Give each of two files the place of the other, so that all counts stay."""
    aside = one.rename(one.with_suffix(".aside"))
    other.rename(one)
    aside.rename(other)


@pytest.mark.parametrize("place", ["", "test"])
def test_finished_runs_on_own_images_are_kept_only_if_labels_and_images_are_the_same(
    own_digits: Path, tmp_path: Path, place: str
) -> None:
    recipes = own_recipes(own_digits)
    assert run_grid(recipes, tmp_path / "grid").keys() == recipes.keys()
    one, other = (min((own_digits / place / name).iterdir()) for name in "12")
    swap(one, other)
    with pytest.raises(UserError, match=r"grid/a: the images or labels .* another folder \(--out"):
        run_grid(recipes, tmp_path / "grid")
    swap(one, other)
    assert run_grid(recipes, tmp_path / "grid").keys() == recipes.keys()


def test_own_images_are_prepared_once_for_all_runs_that_see_the_same(
    own_digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded, prepared = [], []

    def decode(settings: DataSettings) -> DecodedImages:
        decoded.append(settings.path)
        return decode_images(settings.list_images(), 8)

    def count(settings: DataSettings, *others: Any, **named: Any) -> PreparedData:
        prepared.append(settings.split_seed)
        return prepare(settings, *others, **named)

    monkeypatch.setattr(DataSettings, "decode", decode)
    monkeypatch.setattr("dualstudent.grid.prepare", count)
    run_grid(own_recipes(own_digits), tmp_path / "grid")
    assert (decoded, prepared) == ([own_digits], [0, 1])


def test_begun_runs_on_other_images_are_refused_before_anything_is_trained(
    own_digits: Path, tmp_path: Path
) -> None:
    recipes = own_recipes(own_digits)
    Run(tmp_path / "grid" / "c").result.unlink()
    rmtree(tmp_path / "grid" / "a")
    swap(*(min((own_digits / name).iterdir()) for name in "12"))
    with pytest.raises(UserError, match="grid/b: the images or labels"):
        run_grid(recipes, tmp_path / "grid")
    Run(tmp_path / "grid" / "b").about.unlink()
    with pytest.raises(UserError, match="grid/c: the images or labels"):
        run_grid(recipes, tmp_path / "grid")
    assert not (tmp_path / "grid" / "a").exists()


def test_runs_with_a_trunk_are_compared_by_their_labeled_images_and_no_features_are_computed(
    own_digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_weights(tmp_path / "mine.pt")
    trunk = ("name=efficientnet-lite0", f"weights={tmp_path / 'mine.pt'}", "image_size=32")
    changes = [f"trunk.{each}" for each in (*trunk, "weak_views=1", "strong_views=0")]
    changes += ["network.name=mlp", "schedule.epochs=1", "data.labels=20", "batch.size=40"]
    with_trunk = use_own_images("digits", locate_images(own_digits), changes)
    train(with_trunk, tmp_path / "grid" / "trunk")
    monkeypatch.setattr(FrozenTrunk, "forward", lambda *_: pytest.fail("computed again"))
    monkeypatch.setenv("DUALSTUDENT_CACHE", str(tmp_path / "empty"))
    recipes = {"trunk": with_trunk, **own_recipes(own_digits)}
    assert run_grid(recipes, tmp_path / "grid").keys() == recipes.keys()
    swap(*(min((own_digits / name).iterdir()) for name in "12"))
    with pytest.raises(UserError, match=r"trunk/split\.json: belongs to .* other content"):
        run_grid(recipes, tmp_path / "grid")


def test_own_images_may_be_gone_when_all_runs_have_finished(
    own_digits: Path, tmp_path: Path
) -> None:
    recipes = own_recipes(own_digits)
    own_digits.rename(tmp_path / "elsewhere")
    with pytest.warns(UserWarning, match="digits does not exist") as warned:
        assert run_grid(recipes, tmp_path / "grid").keys() == recipes.keys()
    assert len(warned) == 1


def test_published_data_may_be_gone_when_all_runs_have_finished(
    small_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copytree(small_run.folder, tmp_path / "seed-0")
    monkeypatch.delattr("dualstudent.grid.prepare")
    assert run_grid({"seed-0": RECIPES["seed-0"]}, tmp_path).keys() == {"seed-0"}


PROGRAM = """
import signal, sys
from pathlib import Path
from dualstudent import Callback
from dualstudent.grid import run_grid
from tests.support.recipes import small_recipe

class Tells(Callback):
    told = False

    def on_step(self, step):
        if step >= 2 and not self.told:
            self.told = True
            print("two epochs are done", flush=True)

if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever the tests were started with
    recipe = small_recipe("schedule.epochs=10000", "evaluation.every=1000")
    run_grid({"long": recipe}, Path(sys.argv[1]), Tells(), workers=1)
"""


@pytest.fixture
def long_grid(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A grid of one run that would take hours, in its first epochs."""
    (tmp_path / "program.py").write_text(PROGRAM)
    parent = subprocess.Popen(
        [sys.executable, tmp_path / "program.py", tmp_path / "grid"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert parent.stdout is not None
    with parent.stdout as told:
        try:
            assert told.readline() == "two epochs are done\n"
            yield parent
        finally:
            parent.kill()
            parent.wait()


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [[signal.SIGKILL], [signal.SIGHUP, signal.SIGHUP]])
def test_a_run_ends_with_the_grid_that_began_it(
    long_grid: subprocess.Popen[str], numbers: list[int], tmp_path: Path
) -> None:
    run = Run(tmp_path / "grid" / "long")
    for number in numbers:  # a closing terminal sends two
        long_grid.send_signal(number)
    long_grid.communicate()  # until the worker has ended, too: it holds the same output
    two_epochs = 2 * STEPS  # only the first one has a checkpoint of its own
    assert read_checkpoint(run.checkpoint).notes.step >= two_epochs
    assert not run.result.is_file()
    with run.lock():
        pass  # nobody else trains it


def test_a_grid_is_started_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="started 2 processes"):
        run_grid(RECIPES, tmp_path)
    assert not any(tmp_path.iterdir())


class KillsWorkerAt(Callback):
    def on_step(self, step: int) -> None:
        if step:
            for worker in active_children():
                worker.kill()


@pytest.mark.slow
def test_a_killed_worker_is_reported_and_the_grid_continues(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the same command continues"):
        run_grid(RECIPES, tmp_path, KillsWorkerAt(), workers=1)
    assert active_children() == []
    before = len(Run(tmp_path / "seed-0").read_metrics())
    counts = Counts()
    run_grid({"seed-0": RECIPES["seed-0"]}, tmp_path, counts)
    assert counts.seen[0] == before


def test_a_failing_disk_is_reported_with_the_run(tmp_path: Path) -> None:
    (tmp_path / "seed-0").write_text("a file where a folder should be")
    with pytest.raises(UserError, match=r"seed-0: .*Not a directory"):
        run_grid({"seed-0": RECIPES["seed-0"]}, tmp_path, workers=1)
