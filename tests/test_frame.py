import shutil
from pathlib import Path

import pandas as pd
import pytest

from dualstudent import Run, UserError, prepare, runs_frame
from tests.support.recipes import small_recipe

COLUMNS = ["run", "seed", "method.name", "epoch", "step", "network", "learning_rate", "ramp"]


def test_a_row_has_the_metrics_of_a_network_in_an_epoch(
    small_run: Run, teacher_run: Run, tmp_path: Path
) -> None:
    for run in (small_run, teacher_run):
        shutil.copytree(run.folder, tmp_path / run.folder.name)
    frame = runs_frame(tmp_path)
    assert isinstance(frame, pd.DataFrame)
    assert set(COLUMNS) <= set(frame)
    assert "network.name" not in frame  # it is the same in both
    assert not frame.duplicated(["run", "epoch", "network"]).any()
    for run in (small_run, teacher_run):
        of_run = frame[frame.run == run.folder.name]
        for record in run.read_metrics():
            rows = of_run[of_run.epoch == record["epoch"]].set_index("network")
            assert set(rows.index) == set(record["test"])
            for network, figures in record["test"].items():
                for figure in ("error", "stable_share"):
                    assert rows.loc[network, figure] == figures[figure]
            first = record["loss"][0]
            student = "student1" if "student1" in rows.index else "student"
            assert rows.loc[student, "loss.consistency"] == first["consistency"]
    assert frame[frame.network == "teacher"]["loss.consistency"].isna().all()


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run"):
        runs_frame(tmp_path)


def test_a_single_run_is_a_folder_of_runs(small_run: Run) -> None:
    assert runs_frame(small_run.folder).run.unique().tolist() == ["."]


@pytest.mark.parametrize("file", ["run.json", "recipe.toml", "metrics.jsonl", "result.json"])
def test_a_damaged_run_is_left_out_and_named(small_run: Run, tmp_path: Path, file: str) -> None:
    for name in ("good", "bad"):
        shutil.copytree(small_run.folder, tmp_path / name)
    with (tmp_path / "bad" / file).open("ab") as damaged:
        damaged.write(b"\x00")
    with pytest.warns(UserWarning, match=f"left out: .*bad.{file}"):
        assert runs_frame(tmp_path).run.unique().tolist() == ["good"]
    with pytest.warns(UserWarning, match="left out"), pytest.raises(UserError, match="no run"):
        runs_frame(tmp_path / "bad")


def test_every_cell_is_one_value(small_run: Run, tmp_path: Path) -> None:
    shutil.copytree(small_run.folder, tmp_path / "small")
    begun = small_recipe("transforms.weak.affine=[15, 0.1, 0.1, 0.1]")
    Run.create(tmp_path / "begun", begun, prepare(begun.data, begun.seed))
    frame = runs_frame(tmp_path)
    assert frame["transforms.weak.affine"].unique().tolist() == ["[0.0, 0.0, 0.0, 0.0]"]
    for record in small_run.read_metrics():
        rows = frame[frame.epoch == record["epoch"]].set_index("network")
        for network, figures in record["test"].items():
            for number, accuracy in enumerate(figures["class_accuracy"]):
                assert rows.loc[network, f"class_accuracy.{number}"] == accuracy
    assert not frame.map(lambda cell: isinstance(cell, list | dict)).any(axis=None)
