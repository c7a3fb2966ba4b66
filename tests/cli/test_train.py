"""Training by a recipe, and the commands that use the run."""

import json
from pathlib import Path

import pytest

from tests.support.command import Command
from tests.support.recipes import SMALL

SMALL_CHANGES = [part for change in SMALL for part in ("--set", change)]


def test_train_evaluate_and_export_show_the_same_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    code, trained, messages = command("train", "demo", *SMALL_CHANGES)
    assert (code, messages) == (0, "")
    run = tmp_path / "runs" / "demo-0"
    result = json.loads((run / "result.json").read_text())
    _, evaluated, _ = command("evaluate", "runs/demo-0")
    for figures in result["networks"].values():
        for output in (trained, evaluated):
            assert f"{figures['error']:.2f} %" in output
            assert f"{figures['stable_share']:.2f} %" in output
    assert (run / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "runs/demo-0/report.html" in trained
    assert f"{result['error']:.2f}\u00a0%" in (run / "report.html").read_text()
    export = ("export", "runs/demo-0", "--to", "safetensors", "--network", "student2")
    code, exported, messages = command(*export)
    assert (code, messages) == (0, "")
    assert exported.startswith("runs/demo-0/student2.safetensors: ")
    assert f"{result['networks']['student2']['error']:.2f} %" in exported
    code, _, messages = command(*export)
    assert (code, messages.count("\n")) == (2, 1)
    assert "student2.safetensors" in messages


@pytest.mark.filterwarnings("default::dualstudent.errors.NotKeptWarning")
def test_what_another_method_does_not_keep_is_one_line(tmp_path: Path, command: Command) -> None:
    changes = [*SMALL_CHANGES, "--set", "method.name=mean-teacher", "--set", "method.decay=0.99"]
    code, _, messages = command("train", "demo", *changes, "--out", tmp_path / "run")
    assert (code, messages.count("\n")) == (0, 1)
    assert messages.startswith("warning: --set: method.name = 'mean-teacher'")
    assert "consistency_weight = 10, stabilization_weight = 100" in messages


def test_a_run_cannot_be_in_a_file(tmp_path: Path, command: Command) -> None:
    file = tmp_path / "table.csv"
    file.touch()
    code, _, messages = command("train", "demo", "--out", file / "run")
    assert (code, messages.count("\n")) == (2, 1)
    assert messages.startswith(f"error: {file} is a file")
