"""The program as a user meets it: real processes, their output and exit codes."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from dualstudent.cli import main
from tests.training.small import SMALL

SMALL_CHANGES = [part for change in SMALL for part in ("--set", change)]


def dualstudent(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dualstudent.cli", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"COLUMNS": "200"},
    )


def test_help_names_every_command(tmp_path: Path) -> None:
    shown = dualstudent("--help", cwd=tmp_path).stdout
    for command in ("demo", "train", "resume", "evaluate", "recipes", "reproduce"):
        assert command in shown


def test_recipes_can_be_listed_shown_saved_and_used(tmp_path: Path) -> None:
    assert "usps-mnist" in dualstudent("recipes", cwd=tmp_path).stdout
    text = dualstudent("recipes", "show", "demo", cwd=tmp_path).stdout
    (tmp_path / "mine.toml").write_text(text)
    full = dualstudent("recipes", "show", "mine.toml", "--full", cwd=tmp_path).stdout
    assert "logit_distance_weight = 0.01" in full


def test_train_then_evaluate_show_the_same_figures(tmp_path: Path) -> None:
    trained = dualstudent("train", "demo", *SMALL_CHANGES, cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    run = tmp_path / "runs" / "demo-0"
    result = json.loads((run / "result.json").read_text())
    evaluated = dualstudent("evaluate", "runs/demo-0", cwd=tmp_path)
    for figures in result["networks"].values():
        for output in (trained.stdout, evaluated.stdout):
            assert f"{figures['error']:.2f} %" in output
            assert f"{figures['stable_share']:.2f} %" in output
    assert (run / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "dmo"), "did you mean 'demo'"),
        (("train", "demo", "--set", "data.lables=20"), "did you mean 'data.labels'"),
        (("train", "demo", "--set", "data.labels=55"), "use a multiple of 10"),
        (("train", "demo", "--set", "data.folder=../data", "--set", "data.target=usps"), "usps"),
        (("resume", "nowhere"), "nowhere does not exist"),
        (("evaluate", "nowhere"), "nowhere does not exist"),
        (("recipes", "show", "dmo"), "did you mean 'demo'"),
        (("reproduce", "table7"), "use one of table1"),
        (("reproduce",), "reproduce --list"),
        (("reproduce", "table1", "--only", "XYZ"), "fits no cell of table1: Π, 1k labels"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2_and_nothing_is_written(
    arguments: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["dualstudent", *arguments])
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    for proxy in ("http_proxy", "https_proxy"):  # refuses at once, like having no network
        monkeypatch.setenv(proxy, "http://127.0.0.1:9")
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: ")
    assert message in shown
    assert shown.count("\n") == 1
    assert not any(tmp_path.iterdir())


def test_a_mistake_shows_no_traceback_in_a_real_process(tmp_path: Path) -> None:
    finished = dualstudent("train", "demo", "--set", "seed=-1", cwd=tmp_path)
    assert finished.returncode == 2
    expected = "error: recipe demo: seed = -1: input should be greater than or equal to 0\n"
    assert finished.stderr == expected


@pytest.mark.parametrize("name", ["dual_student", "mean_teacher"])
def test_the_examples_learn(name: str) -> None:
    source = (Path(__file__).parents[1] / "examples" / f"{name}.py").read_text()
    shorter = source.replace("EPOCHS, SEED = 10, 0", "EPOCHS, SEED = 2, 0")
    finished = subprocess.run(
        [sys.executable, "-c", shorter], capture_output=True, text=True, check=True
    )
    last = finished.stdout.splitlines()[-1]
    assert last.startswith("epoch 2: test error")
    errors = [float(word) for word in last.split()[4:7] if word[0].isdigit()]
    assert min(errors) < 80  # chance is 90
