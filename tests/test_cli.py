"""The program as a user meets it: real processes, their output and exit codes."""

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.support.command import Command
from tests.support.pictures import save_picture
from tests.support.recipes import SMALL

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
    for command in (
        "demo",
        "train",
        "resume",
        "evaluate",
        "report",
        "check",
        "export",
        "recipes",
        "reproduce",
    ):
        assert command in shown


def test_recipes_can_be_listed_shown_saved_and_used(tmp_path: Path) -> None:
    assert "usps-mnist" in dualstudent("recipes", cwd=tmp_path).stdout
    text = dualstudent("recipes", "show", "demo", cwd=tmp_path).stdout
    (tmp_path / "mine.toml").write_text(text)
    full = dualstudent("recipes", "show", "mine.toml", "--full", cwd=tmp_path).stdout
    assert "logit_distance_weight = 0.01" in full


def test_train_then_evaluate_and_export_show_the_same_figures(tmp_path: Path) -> None:
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
    assert "to look at it: runs/demo-0/report.html" in trained.stdout
    assert f"{result['error']:.2f}\u00a0%" in (run / "report.html").read_text()
    export = ("export", "runs/demo-0", "--to", "safetensors", "--network", "student2")
    exported = dualstudent(*export, cwd=tmp_path)
    error = result["networks"]["student2"]["error"]
    expected = f"runs/demo-0/student2.safetensors: student2, {error:.2f} % test error, 10 classes\n"
    assert exported.stdout.startswith(expected)
    assert (exported.returncode, exported.stderr) == (0, "")
    again = dualstudent(*export, cwd=tmp_path)
    assert (again.returncode, again.stderr.count("\n")) == (2, 1)
    assert "student2.safetensors already exists" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "dmo"), "did you mean 'demo'"),
        (("train", "demo", "--set", "data.lables=20"), "did you mean 'data.labels'"),
        (("train", "demo", "--set", "data.labels=55"), "use a multiple of 10"),
        (("train", "demo", "--set", "data.folder=../data", "--set", "data.target=usps"), "usps"),
        (("resume", "nowhere"), "nowhere does not exist"),
        (("evaluate", "nowhere"), "nowhere does not exist"),
        (("report", "nowhere"), "nowhere does not exist"),
        (("report", "."), ". is not a run"),
        (("export", "nowhere", "--to", "onnx"), "nowhere does not exist"),
        (("recipes", "show", "dmo"), "did you mean 'demo'"),
        (("methods", "mean-techer"), "did you mean 'mean-teacher'"),
        (("check", "nowhere"), "nowhere: does not exist; give a folder"),
        (("check", "."), "holds no images"),
        (("reproduce", "table7"), "use one of table1"),
        (("reproduce",), "reproduce --list"),
        (
            ("reproduce", "table1", "--only", "XYZ"),
            "fits no cell of table1, ",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2_and_nothing_is_written(
    arguments: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: Command,
) -> None:
    monkeypatch.chdir(tmp_path)
    for proxy in ("http_proxy", "https_proxy"):  # refuses at once, like having no network
        monkeypatch.setenv(proxy, "http://127.0.0.1:9")
    code, _, shown = command(*arguments)
    assert code == 2
    assert shown.startswith("error: ")
    assert message in shown
    assert shown.count("\n") == 1
    assert not any(tmp_path.iterdir())


def test_a_mistake_shows_no_traceback_in_a_real_process(tmp_path: Path) -> None:
    finished = dualstudent("train", "demo", "--set", "seed=-1", cwd=tmp_path)
    assert finished.returncode == 2
    expected = "error: recipe demo: seed = -1: input should be greater than or equal to 0\n"
    assert finished.stderr == expected


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command) -> Command:
    """The command in a folder with some data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DUALSTUDENT_CACHE", str(tmp_path / "cache"))
    for number in range(16):
        place = ("a", "b", "test/a", "test/b")[number % 4]
        save_picture(Path("data", place, f"{number}.png"), seed=number)
    return partial(command, "check")


def test_check_warns_and_refuses_by_its_exit_code(
    check: Command,
) -> None:
    copy = Path("data/test/a/<b>it's,\n[red]me.png")
    shutil.copy("data/a/0.png", copy)
    code, output, messages = check("data")
    assert code == 0
    assert "17 color images, 0 of them unlabeled" in output
    assert "training would be dual-student with quick-cnn on " in output
    assert " on this machine, " in output
    assert " MB of memory for the images\n" in output
    assert (
        "warning: images that are in the test and in training: 1, which makes the test result too "
        "good; take them out of one of the two: "
        "data/a/0.png = data/test/a/<b>it's,\\n[red]me.png\n" in messages
    )
    copy.rename("data/b/other.png")
    code, output, messages = check("data")
    assert code == 2
    assert "training would be" not in output
    expected = "error: images that have two labels: 1; keep the right one: data/a/0.png = "
    assert messages.startswith(expected + "data/b/other.png\n")


def test_check_reads_tables_and_domains(check: Command) -> None:
    rows = [f"data/{'ab'[n % 2]}/{n}.png,{'xy'[n % 2]}" for n in (0, 1, 4, 5, 8, 9, 12, 13)]
    Path("mine.csv").write_text("\n".join(["where,what", *rows]))
    code, output, messages = check("mine.csv", "--path-column", "where", "--label-column", "what")
    assert code == 0, messages
    assert "│ y     │       4 │    0 │" in output
    for number in range(3):
        save_picture(Path("target", f"{number}.png"), seed=100 + number)
    code, output, messages = check("data", "--target", "target")
    assert code == 0, messages
    assert "11 color images, 3 of them unlabeled" in output


def test_the_version_is_that_of_the_package(tmp_path: Path) -> None:
    assert (
        dualstudent("--version", cwd=tmp_path).stdout == f"dualstudent {version('dualstudent')}\n"
    )


def test_a_run_cannot_be_in_a_file(tmp_path: Path, command: Command) -> None:
    file = tmp_path / "table.csv"
    file.touch()
    code, _, shown = command("train", "demo", "--out", file / "run")
    assert (code, shown) == (2, f"error: {file} is a file, no folder; choose another --out\n")


def test_the_settings_of_a_method_say_what_is_allowed(command: Command) -> None:
    code, shown, _ = command("methods", "dual-student")
    assert code == 0
    assert "'mse' or 'kl'" in " ".join(shown.replace("│", " ").split())
