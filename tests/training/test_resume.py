import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dualstudent import Callback, Run, UserError, resume, train
from dualstudent.runs import train_or_resume
from dualstudent.signals import Interrupted
from dualstudent.training.checkpoint import read_tensors
from tests.support.recipes import small_recipe

STEPS = 58


class RaisesSignalAt(Callback):
    def __init__(self, step: int, number: int = signal.SIGINT) -> None:
        self._step, self._number = step, number

    def on_step(self, step: int) -> None:
        if step == self._step:
            signal.raise_signal(self._number)


class DiesAt(Callback):
    def __init__(self, step: int) -> None:
        self._step = step

    def on_step(self, step: int) -> None:
        if step == self._step:
            raise RuntimeError("power cut")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(small_recipe(), tmp_path_factory.mktemp("runs") / "whole")


def assert_equal_runs(run: Run, expected: Run) -> None:
    """Weights, optimizer state and metrics, bit for bit."""
    for path, expected_path in ((run.checkpoint, expected.checkpoint), (run.model, expected.model)):
        tensors, _ = read_tensors(path)
        expected_tensors, _ = read_tensors(expected_path)
        assert tensors.keys() == expected_tensors.keys()
        for name, tensor in tensors.items():
            assert torch.equal(tensor, expected_tensors[name]), name
    assert run.metrics.read_bytes() == expected.metrics.read_bytes()
    assert run.read_result()["networks"] == expected.read_result()["networks"]


# In the first epoch, at its end, right after it, and in the middle of the last.
@pytest.mark.parametrize("step", [1, 13, 29, 30, 47])
def test_a_stopped_run_continues_bit_for_bit(step: int, uninterrupted: Run, tmp_path: Path) -> None:
    with pytest.raises(Interrupted, match=f"SIGINT after step {step}"):
        train(small_recipe(), tmp_path / "run", RaisesSignalAt(step))
    assert not (tmp_path / "run" / "result.json").exists()
    assert_equal_runs(resume(tmp_path / "run"), uninterrupted)


def test_a_run_may_be_stopped_many_times(uninterrupted: Run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(Interrupted):
        train(small_recipe(), folder, RaisesSignalAt(10))
    for step in (11, 29, 40):
        with pytest.raises(Interrupted):
            resume(folder, RaisesSignalAt(step, signal.SIGTERM))
    assert_equal_runs(resume(folder), uninterrupted)


def test_epochs_after_the_checkpoint_are_not_logged_twice(
    uninterrupted: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    with pytest.raises(Interrupted):
        train(small_recipe(), folder, RaisesSignalAt(20))
    with pytest.raises(RuntimeError, match="power cut"):
        resume(folder, DiesAt(40))  # the first epoch is logged, but the checkpoint is older
    assert len(Run.open(folder).read_metrics()) == 1
    assert_equal_runs(resume(folder), uninterrupted)


def test_a_run_that_died_before_its_first_checkpoint_starts_again(
    uninterrupted: Run, tmp_path: Path
) -> None:
    with pytest.raises(RuntimeError, match="power cut"):
        train(small_recipe(), tmp_path / "run", DiesAt(5))
    assert_equal_runs(resume(tmp_path / "run"), uninterrupted)


def test_a_killed_process_continues_bit_for_bit(uninterrupted: Run, tmp_path: Path) -> None:
    """A real process, stopped by SIGTERM and continued by another one."""
    recipe, folder = tmp_path / "small.toml", tmp_path / "run"
    recipe.write_text(uninterrupted.recipe.read_text())
    command = [sys.executable, "-m", "dualstudent.cli"]
    process = subprocess.Popen(
        [*command, "train", str(recipe), "--out", str(folder)], stderr=subprocess.PIPE, text=True
    )
    while not (folder / "metrics.jsonl").exists() and process.poll() is None:
        os.sched_yield()  # signals are handled from the first step on
    process.send_signal(signal.SIGTERM)
    _, message = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM, message
    assert f"dualstudent resume {folder}" in " ".join(message.split())
    finished = subprocess.run([*command, "resume", str(folder)], capture_output=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert_equal_runs(Run.open(folder), uninterrupted)


def test_resuming_a_finished_run_changes_nothing(uninterrupted: Run) -> None:
    before = {p.name: p.read_bytes() for p in uninterrupted.folder.iterdir()}
    resume(uninterrupted.folder)
    assert {p.name: p.read_bytes() for p in uninterrupted.folder.iterdir()} == before


def test_other_labels_than_the_run_began_with_are_refused(
    uninterrupted: Run, tmp_path: Path
) -> None:
    split = tmp_path / "split.json"
    split.write_bytes(uninterrupted.split.read_bytes())
    with pytest.raises(Interrupted):
        train(small_recipe(f"data.split={str(split)!r}"), tmp_path / "run", RaisesSignalAt(3))
    manifest = json.loads(split.read_text())
    others = [p for p in range(100) if p not in manifest["labeled"]]
    split.write_text(json.dumps(manifest | {"labeled": others[:50]}))
    with pytest.raises(UserError, match="labels found now are not those the run began with"):
        resume(tmp_path / "run")


def test_lost_metrics_are_not_made_up(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        train(small_recipe(), tmp_path / "run", RaisesSignalAt(40))
    (tmp_path / "run" / "metrics.jsonl").unlink()
    with pytest.raises(UserError, match="shorter than it was at the last checkpoint"):
        resume(tmp_path / "run")


@pytest.mark.parametrize("name", ["run.json", "recipe.toml", "checkpoint.safetensors"])
@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\xfe"])
def test_a_damaged_file_is_named_in_one_line(name: str, content: bytes, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        train(small_recipe(), tmp_path / "run", RaisesSignalAt(1))
    (tmp_path / "run" / name).write_bytes(content)
    with pytest.raises(UserError, match=name) as error:
        resume(tmp_path / "run")
    assert "\n" not in str(error.value)


def test_a_run_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    """What a crash left of a run that never began is in nobody's way."""
    (tmp_path / "run.partial").mkdir()
    (tmp_path / "run.partial" / "recipe.toml").write_text("half of a rec")
    (tmp_path / "run").mkdir()
    run = train_or_resume(small_recipe("schedule.epochs=1"), tmp_path / "run")
    assert run.read_result()["epochs"] == 1
    assert not (tmp_path / "run.partial").exists()


def test_a_folder_that_is_not_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a run"):
        resume(tmp_path)


def test_a_run_is_trained_by_one_process_at_a_time(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        train(small_recipe(), tmp_path / "run", RaisesSignalAt(3))
    run = Run.open(tmp_path / "run")
    with run.reserved():
        for use in (lambda: resume(run.folder), run.read_result):
            with pytest.raises(UserError, match="is being trained by another process"):
                use()
    with pytest.raises(UserError, match="has not finished; continue it with"):
        run.read_result()
    assert resume(run.folder).read_result()["epochs"] == 2
