import json
import os
import signal
from pathlib import Path

import pytest

from dualstudent import Run, UserError, resume, train
from dualstudent.atomic import name_partial
from dualstudent.runs import train_or_resume
from dualstudent.sealed import write_sealed
from dualstudent.signals import Interrupted
from tests.support.disk import full_disk
from tests.support.processes import dead_process, stopped_by
from tests.support.recipes import small_recipe
from tests.support.runs import DiesAt, RaisesSignalAt, assert_equal_runs

STEPS = 58


@pytest.fixture(scope="module")
def uninterrupted(small_run: Run) -> Run:
    return small_run


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
    with pytest.warns(UserWarning, match="starts again"):
        resumed = resume(tmp_path / "run")
    assert_equal_runs(resumed, uninterrupted)


@pytest.mark.slow
def test_a_killed_process_continues_bit_for_bit(uninterrupted: Run, tmp_path: Path) -> None:
    """A real process, stopped by SIGTERM and continued by another one."""
    folder = tmp_path / "run"
    code, message = stopped_by(signal.SIGTERM, small_recipe(), folder)
    assert code == 128 + signal.SIGTERM, message
    assert f"dualstudent resume {folder}" in " ".join(message.split())
    assert_equal_runs(resume(folder), uninterrupted)


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
    with pytest.raises(UserError, match="images or labels"):
        resume(tmp_path / "run")


def test_other_versions_than_the_run_began_with_are_named(
    uninterrupted: Run, tmp_path: Path
) -> None:
    with pytest.raises(Interrupted):
        train(small_recipe(), tmp_path / "run", RaisesSignalAt(40))
    run = Run(tmp_path / "run")
    about = run.read_about()
    write_sealed(run.about, about | {"versions": about["versions"] | {"torch": "1.0"}})
    with pytest.warns(UserWarning, match=r"begun with torch 1\.0 \(here"):
        resumed = resume(run.folder)
    assert_equal_runs(resumed, uninterrupted)


def test_missing_metrics_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        train(small_recipe(), tmp_path / "run", RaisesSignalAt(40))
    (tmp_path / "run" / "metrics.jsonl").unlink()
    with pytest.raises(UserError, match=r"metrics\.jsonl"):
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


def test_a_run_is_created_completely_or_not_at_all(tmp_path: Path) -> None:
    """A partial folder left by a crash is removed, one of the user is not touched."""
    theirs, ours = tmp_path / "run.partial", name_partial(tmp_path / "run")
    left = ours.with_name(ours.name.replace(str(os.getpid()), str(dead_process())))
    for folder in (theirs, left):
        folder.mkdir()
        (folder / "recipe.toml").write_text("half of a rec")
    (tmp_path / "run").mkdir()
    run = train_or_resume(small_recipe("schedule.epochs=1"), tmp_path / "run")
    assert run.read_result()["epochs"] == 1
    assert (theirs / "recipe.toml").read_text() == "half of a rec"
    assert not left.exists()


def test_a_run_that_does_not_fit_on_the_disk_leaves_nothing(tmp_path: Path) -> None:
    with full_disk(), pytest.raises(OSError, match="/run"):
        train(small_recipe(), tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"run\.json"):
        resume(tmp_path)


def test_a_run_is_trained_by_one_process_at_a_time(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        train(small_recipe(), tmp_path / "run", RaisesSignalAt(3))
    run = Run.open(tmp_path / "run")
    with run.lock():
        for use in (lambda: resume(run.folder), run.read_result):
            with pytest.raises(UserError, match="another process"):
                use()
    with pytest.raises(UserError, match="dualstudent resume"):
        run.read_result()
    assert resume(run.folder).read_result()["epochs"] == 2


def make_earlier(run: Run) -> None:
    """Turn a run into one of an earlier version, which wrote format 2, without digests."""
    about = run.read_about() | {"format": 2}
    del about["digests"]
    run.about.write_text(json.dumps(about))


@pytest.mark.parametrize("name", ["vat", "deep-co-training"])
def test_a_run_of_a_method_whose_loss_was_another_one_is_refused(name: str, tmp_path: Path) -> None:
    changes = [f"method.name={name}", *(["method.epsilon=1"] if name == "vat" else [])]
    recipe = small_recipe(*changes)
    with pytest.raises(Interrupted):
        train(recipe, tmp_path / "run", RaisesSignalAt(3))
    make_earlier(run := Run.open(tmp_path / "run"))
    with pytest.raises(UserError, match=f"earlier version, whose {name} has another loss"):
        resume(run.folder)
    with pytest.raises(UserError, match=f"earlier version, whose {name} has another loss"):
        train_or_resume(recipe, run.folder)
    assert run.read_recipe() == recipe


def test_a_term_of_minus_0_leaves_the_same_bytes(tmp_path: Path) -> None:
    """SHOT has such a term before it adapts."""
    recipe = small_recipe("method.name=shot", "schedule.epochs=2")
    whole = train(recipe, tmp_path / "whole")
    with pytest.raises(Interrupted):
        train(recipe, tmp_path / "run", RaisesSignalAt(3))
    assert resume(tmp_path / "run").metrics.read_bytes() == whole.metrics.read_bytes()


def test_smooth_neighbors_of_the_version_before_go_on_with_sums(tmp_path: Path) -> None:
    recipe = small_recipe("method.name=pi+sn", "method.neighbor_distance=sum")
    whole = train(recipe, tmp_path / "whole")
    with pytest.raises(Interrupted):
        train(recipe, tmp_path / "run", RaisesSignalAt(40))
    make_earlier(run := Run.open(tmp_path / "run"))
    text = run.recipe.read_text()
    assert 'neighbor_distance = "sum"\n' in text
    run.recipe.write_text(text.replace('neighbor_distance = "sum"\n', ""))
    assert_equal_runs(resume(run.folder), whole)
    with pytest.raises(UserError, match="another recipe"):
        train_or_resume(small_recipe("method.name=pi+sn"), run.folder)


def test_other_runs_of_the_version_before_go_on(uninterrupted: Run, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        train(small_recipe(), tmp_path / "run", RaisesSignalAt(40))
    make_earlier(run := Run.open(tmp_path / "run"))
    assert_equal_runs(resume(run.folder), uninterrupted)
