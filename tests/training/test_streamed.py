"""Runs on images that are read from files while training."""

import json
import multiprocessing
import signal
import warnings
from pathlib import Path

import pytest

from dualstudent import Run, UserError, export_run, resume, train
from dualstudent.batch import Shard
from dualstudent.data.batching.loader import BatchLoader
from dualstudent.data.datasets import ImageFiles
from dualstudent.data.prepare import prepare
from dualstudent.training.model import evaluate_run
from tests.support.command import Command
from tests.support.imagenet import (
    STREAMED,
    streamed_recipe,
    warns_of_the_count,
    write_imagenet,
)
from tests.support.processes import stopped_by
from tests.support.runs import DiesAt, assert_equal_runs

pytestmark = warns_of_the_count

STEPS = 18


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_imagenet(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def whole(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run without interruption and without workers."""
    return train(streamed_recipe(folder, workers=0), tmp_path_factory.mktemp("runs") / "whole")


@pytest.mark.learns
def test_a_small_network_learns_colors_from_files(whole: Run) -> None:
    result = whole.read_result()

    assert result["steps"] == STEPS
    assert result["error"] < 50  # 12.5 on both CPUs, 4 to 25 with other seeds; chance is 75
    assert result["unreadable_images"] == 0
    assert not whole.log.exists()
    assert evaluate_run(whole) == result["networks"]
    assert json.loads(whole.split.read_text())["per_class"] == {
        "n01440764": 4,
        "n01443537": 4,
        "n02123045": 4,
        "n03930630": 4,
    }


def test_an_exported_file_says_how_the_photos_were_evaluated(whole: Run, tmp_path: Path) -> None:
    card = export_run(whole, "safetensors", tmp_path / "model.safetensors").card
    assert card.image_size == 32
    assert "resize it to 37 × 37" in card.preprocessing  # 32 · 256 / 224 = 36.6
    assert "take its middle of 32 × 32" in card.preprocessing


@pytest.mark.slow
def test_a_signal_to_all_processes_stops_cleanly_and_resume_is_exact(
    folder: Path, whole: Run, tmp_path: Path
) -> None:
    code, said = stopped_by(signal.SIGTERM, streamed_recipe(folder, workers=1), tmp_path / "run")

    assert code == 128 + signal.SIGTERM
    assert "stopped: SIGTERM after step 3; continue with" in said
    assert "Traceback" not in said
    assert_equal_runs(resume(tmp_path / "run"), whole)  # which had no workers
    assert multiprocessing.active_children() == []


@pytest.mark.slow
def test_workers_end_when_the_run_is_killed(folder: Path, tmp_path: Path) -> None:
    code, _ = stopped_by(signal.SIGKILL, streamed_recipe(folder, workers=1), tmp_path / "run")

    assert code == -signal.SIGKILL


def test_workers_end_when_the_run_fails(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="power cut") as failure:
        train(streamed_recipe(folder, workers=1), tmp_path / "run", DiesAt(1))

    assert multiprocessing.active_children() == []
    assert failure.traceback  # held until here, with all that it refers to


@pytest.mark.slow
def test_broken_images_are_logged_counted_and_do_not_change_the_way_back(tmp_path: Path) -> None:
    folder = write_imagenet(tmp_path / "data")
    broken = [
        *sorted((folder / "imagenet" / "train").glob("*/*.JPEG"))[::16],
        *sorted((folder / "imagenet" / "val").glob("*/*.JPEG"))[:1],
    ]
    for path in broken:
        path.write_bytes(path.read_bytes()[:300])
    chosen = streamed_recipe(folder, 0, "data.broken_share=0.2")

    straight = train(chosen, tmp_path / "straight")
    with pytest.raises(RuntimeError):
        train(chosen, tmp_path / "again", DiesAt(9))
    again = resume(tmp_path / "again")

    assert_equal_runs(again, straight)
    for run in (straight, again):
        lines = run.log.read_text().splitlines()
        assert sorted(line.partition(": ")[0] for line in lines) == [str(path) for path in broken]
        assert run.read_result()["unreadable_images"] == len(broken) == 5


def test_too_many_broken_images_end_the_run(tmp_path: Path) -> None:
    folder = write_imagenet(tmp_path / "data")
    for path in sorted((folder / "imagenet" / "train").glob("*/*.JPEG"))[::2]:
        path.write_text("no image")

    with pytest.raises(UserError, match=r"data\.broken_share"):
        train(streamed_recipe(folder, workers=0), tmp_path / "run")
    assert (tmp_path / "run" / "log.txt").read_text().count("not an image") > 5


@pytest.mark.slow
def test_processes_that_share_a_run_end_it_together(tmp_path: Path) -> None:
    """The image that is broken is one that the follower meets in the first step."""
    shared = streamed_recipe(
        write_imagenet(tmp_path / "data"), 0, "device.processes=2", "data.broken_share=0"
    )
    data = prepare(shared.data, shared.seed, shared.transforms, shared.normalization)
    met_by_follower = (
        BatchLoader(data, shared.batch, shared.seed, shard=Shard(1, 2)).batch(0).indices
    )
    assert isinstance(data.source, ImageFiles)
    broken = data.source.path(int(met_by_follower[0]))
    broken.write_text("no image")

    with pytest.raises(UserError, match=r"log\.txt .*data\.broken_share"):
        train(shared, tmp_path / "run")
    assert (tmp_path / "run" / "log.txt").read_text().startswith(f"{broken}: not an image")


def test_the_command_line_shows_the_count(tmp_path: Path, command: Command) -> None:
    folder = write_imagenet(tmp_path / "data")
    (folder / "imagenet" / "val" / "n01440764" / "n01440764_0.JPEG").write_text("no image")
    settings = (*STREAMED, f"data.folder={folder}", "data.workers=0", "schedule.epochs=1")
    changes = [argument for change in settings for argument in ("--set", change)]
    run = tmp_path / "run"

    with warnings.catch_warnings(action="always"):
        code, said, warned = command("train", "digits", "--out", run, *changes)
    assert code == 0
    assert "1 image could not be read" in said
    assert "64 images of 1,281,167 published" in warned
    with warnings.catch_warnings(action="always"):
        code, figures, warned = command("evaluate", run)
    assert code == 0
    for network in json.loads((run / "result.json").read_text())["networks"].values():
        assert f"{network['error']:.2f} %" in figures
    assert "n01440764_0.JPEG: not an image" in warned
