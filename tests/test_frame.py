import shutil
from pathlib import Path

import pandas as pd
import pytest

from dualstudent import Run, UserError, runs_frame

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
