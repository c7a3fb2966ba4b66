"""A disk that is full: the error names the file, nothing is left behind, a run can be resumed."""

import errno
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dualstudent import Callback, Run, UserError, export_run, resume, train
from dualstudent.training.predictor import write_predictions
from tests.support.disk import full_disk
from tests.support.recipes import small_recipe
from tests.support.runs import assert_equal_runs


class FillsDiskAt(Callback):
    def __init__(self, step: int, most_bytes: int) -> None:
        self._step = step
        self._limit = full_disk(most_bytes)

    def on_step(self, step: int) -> None:
        if step == self._step:
            self._limit.__enter__()

    def free(self) -> None:
        self._limit.__exit__(None, None, None)


# The checkpoint has 250 kB, a line of the metrics 1.4 kB.
@pytest.mark.parametrize(
    ("step", "most_bytes", "name"),
    [
        (28, 0, "metrics.jsonl"),
        (28, 100_000, "checkpoint.safetensors"),
        (57, 2_000, "metrics.jsonl"),
        (58, 100_000, "checkpoint.safetensors"),
    ],
)
def test_a_run_on_a_full_disk_can_be_resumed(
    step: int, most_bytes: int, name: str, small_run: Run, tmp_path: Path
) -> None:
    folder, full = tmp_path / "run", FillsDiskAt(step, most_bytes)
    try:
        with pytest.raises((UserError, OSError)) as error:
            train(small_recipe(), folder, full)
    finally:
        full.free()
    assert name in str(error.value)
    assert not list(folder.glob("*.partial"))
    if step < 29:
        with pytest.warns(UserWarning, match="starts again"):
            resumed = resume(folder)
    else:
        resumed = resume(folder)
    assert_equal_runs(resumed, small_run)


def test_a_model_that_does_not_fit_is_written_by_resume(small_run: Run, tmp_path: Path) -> None:
    run = Run(Path(shutil.copytree(small_run.folder, tmp_path / "run")))
    for path in (run.model, run.result):
        path.unlink()
    with full_disk(5_000), pytest.raises(OSError, match=r"model\.safetensors"):
        resume(run.folder)
    assert not list(run.folder.glob("*.partial"))
    assert_equal_runs(resume(run.folder), small_run)


@pytest.mark.parametrize("to", ["onnx", "torch-export", "safetensors"])
def test_an_export_that_does_not_fit_leaves_nothing(
    to: str, small_run: Run, tmp_path: Path
) -> None:
    with full_disk(5_000), pytest.raises((UserError, OSError)) as error:
        export_run(small_run, to, tmp_path / "model")
    assert str(tmp_path / "model") in str(error.value)
    assert "partial" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_predictions_that_do_not_fit_leave_nothing(small_run: Run, tmp_path: Path) -> None:
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "image.png")
    with full_disk(), pytest.raises(OSError, match=r"p\.csv") as error:
        write_predictions(small_run, tmp_path / "image.png", tmp_path / "p.csv")
    assert error.value.errno == errno.EFBIG
    assert [path.name for path in tmp_path.iterdir()] == ["image.png"]
