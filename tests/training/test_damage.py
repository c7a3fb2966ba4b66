"""Damaged files of a run are noticed; a training goes on from what is whole."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dualstudent import Predictor, Run, UserError, resume, train
from dualstudent.signals import Interrupted
from dualstudent.training.checkpoint import read_checkpoint
from tests.support.recipes import small_recipe
from tests.support.runs import RaisesSignalAt, assert_equal_runs


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with checkpoints of the steps 40 and 50."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.raises(Interrupted):
        train(small_recipe(), folder, RaisesSignalAt(40))
    with pytest.raises(Interrupted):
        resume(folder, RaisesSignalAt(50))
    return Run(folder)


@pytest.fixture
def run(stopped: Run, tmp_path: Path) -> Run:
    return Run(Path(shutil.copytree(stopped.folder, tmp_path / "run")))


def flip_bit(path: Path, share: float) -> None:
    """Flip one bit, so far into the file as ``share`` says."""
    content = bytearray(path.read_bytes())
    content[int(share * len(content))] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def test_the_last_two_checkpoints_are_kept(stopped: Run) -> None:
    kept = (stopped.checkpoint, stopped.earlier_checkpoint)
    assert [read_checkpoint(path).notes.step for path in kept] == [50, 40]


@pytest.mark.parametrize(
    "damage",
    [
        *(lambda path, share=share: flip_bit(path, share) for share in (0, 0.001, 0.3, 0.6, 0.999)),
        cut,
        Path.unlink,
        lambda path: path.write_bytes(b""),
    ],
)
def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    damage: Callable[[Path], object], run: Run, small_run: Run
) -> None:
    damage(run.checkpoint)
    with pytest.warns(UserWarning, match=r"checkpoint\.safetensors.*going on from.*step 40"):
        resumed = resume(run.folder)
    assert_equal_runs(resumed, small_run)
    assert not resumed.earlier_checkpoint.exists()


def test_a_good_checkpoint_is_not_replaced_by_a_damaged_one(run: Run) -> None:
    cut(run.checkpoint)
    with pytest.warns(UserWarning, match="step 40"), pytest.raises(Interrupted):
        resume(run.folder, RaisesSignalAt(45))
    kept = (run.checkpoint, run.earlier_checkpoint)
    assert [read_checkpoint(path).notes.step for path in kept] == [45, 40]


def test_with_both_damaged_nothing_is_trained_or_changed(run: Run) -> None:
    for path in (run.checkpoint, run.earlier_checkpoint):
        flip_bit(path, 0.7)
    before = {path.name: path.read_bytes() for path in run.folder.iterdir()}
    with pytest.raises(UserError, match=r"checkpoint\.safetensors: is damaged"):
        resume(run.folder)
    assert {path.name: path.read_bytes() for path in run.folder.iterdir()} == before


def test_deleted_checkpoints_of_a_run_that_was_further_are_an_error(
    small_run: Run, tmp_path: Path
) -> None:
    run = Run(Path(shutil.copytree(small_run.folder, tmp_path / "run")))
    for path in (run.result, run.checkpoint):
        path.unlink()
    before = run.metrics.read_bytes()
    with pytest.raises(UserError, match=r"checkpoint\.safetensors: is missing"):
        resume(run.folder)
    assert run.metrics.read_bytes() == before


@pytest.mark.parametrize("damage", [cut, Path.unlink])
def test_a_damaged_choice_of_labels_is_written_again(
    damage: Callable[[Path], object], run: Run, small_run: Run
) -> None:
    damage(run.split)
    with pytest.warns(UserWarning, match=r"split\.json: was damaged"):
        resume(run.folder)
    assert run.split.read_bytes() == small_run.split.read_bytes()


def test_changed_metrics_are_noticed(run: Run) -> None:
    flip_bit(run.metrics, 0.5)
    with pytest.raises(UserError, match=r"metrics\.jsonl: is not as it was"):
        resume(run.folder)


def test_metrics_that_were_whole_at_the_checkpoint_before_fall_back_to_it(
    small_run: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    with pytest.raises(Interrupted):
        train(small_recipe("schedule.epochs=3"), folder, RaisesSignalAt(40))
    with pytest.raises(Interrupted):
        resume(folder, RaisesSignalAt(60))
    flip_bit(Run(folder).metrics, 0.9)  # in the second epoch
    with pytest.warns(UserWarning, match=r"metrics\.jsonl.*going on from.*step 40"):
        resumed = resume(folder)
    assert_equal_runs(resumed, train(small_recipe("schedule.epochs=3"), tmp_path / "whole"))


def test_a_recipe_that_was_edited_after_the_start_is_refused(run: Run) -> None:
    text = run.recipe.read_text()
    assert "learning_rate = 0.1" in text
    run.recipe.write_text(text.replace("learning_rate = 0.1", "learning_rate = 0.2"))
    with pytest.raises(UserError, match=r"recipe\.toml: has changed"):
        resume(run.folder)


@pytest.mark.parametrize("share", [0.02, 0.2, 0.5, 0.8, 0.95])
@pytest.mark.parametrize("name", ["run.json", "result.json", "metrics.jsonl", "model.safetensors"])
def test_a_finished_run_with_a_flipped_bit_is_not_used(
    name: str, share: float, small_run: Run, tmp_path: Path
) -> None:
    def read_all(run: Run) -> None:
        Predictor(Run.open(run.folder))
        run.read_metrics()

    run = Run(Path(shutil.copytree(small_run.folder, tmp_path / "run")))
    read_all(run)
    flip_bit(run.folder / name, share)
    with pytest.raises(UserError, match=name):
        read_all(run)
