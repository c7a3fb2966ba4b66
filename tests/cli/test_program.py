"""The program as a whole: help, version, mistakes, and what it must not import."""

import ast
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import dualstudent
from dualstudent import cli
from tests.support.command import Command
from tests.support.isolated import run_without

PACKAGE = Path(dualstudent.__path__[0])
COMMANDS = {
    *("demo", "check", "train", "resume", "evaluate", "report", "predict", "label", "export"),
    *("compare", "reproduce", "doctor", "methods", "recipes", "teach", "verify"),
}


def test_every_command_has_a_file_and_is_in_the_help(command: Command) -> None:
    code, shown, _ = command("--help")
    assert code == 0
    words = set(shown.replace("│", " ").split())
    for name in COMMANDS:
        assert name in words
        assert (PACKAGE / "cli" / f"{name}.py").is_file()
    listed = {each.callback.__name__ for each in cli.app.registered_commands if each.callback}
    assert listed | {"recipes"} == COMMANDS


def test_the_package_runs_as_a_program(tmp_path: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "dualstudent", "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.split() == ["dualstudent", version("dualstudent")]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["train", "--help"],
        ["methods"],
        ["recipes"],
        ["recipes", "show", "digits"],
    ],
)
def test_answers_come_without_packages_that_load_slowly(
    arguments: list[str], tmp_path: Path
) -> None:
    program = f"""
sys.argv = ["dualstudent", *{arguments!r}]
from dualstudent.cli import main
main()
"""
    slow = ["torch", "numpy", "matplotlib", "sklearn"]
    assert run_without(slow, program, tmp_path)


@pytest.mark.slow
def test_a_run_and_its_page_need_no_packages_that_load_slowly(tmp_path: Path) -> None:
    """Every process of a grid would wait for them, seconds for a training of a minute."""
    program = """
from dualstudent import load_recipe, train
changes = ["data.images=300", "schedule.epochs=1", "batch.size=64", "batch.labeled=16"]
print(train(load_recipe("digits", changes), "run").page.read_text())
"""
    slow = ["scipy", "sklearn", "pandas", "matplotlib"]
    assert "</html>" in run_without(slow, program, tmp_path)


def imported(file: Path) -> set[str]:
    """The packages that a file imports anywhere."""
    names = []
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
    return {name.split(".")[0] for name in names}


def test_only_the_command_line_imports_what_prints() -> None:
    for file in PACKAGE.rglob("*.py"):
        if file.parent != PACKAGE / "cli":
            bars = {"rich"} if file == PACKAGE / "progress.py" else set()  # for Python, too
            assert imported(file).isdisjoint({"rich", "typer"} - bars), file


def test_data_that_cannot_be_downloaded_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    for proxy in ("http_proxy", "https_proxy"):  # refuses at once, like having no network
        monkeypatch.setenv(proxy, "http://127.0.0.1:9")
    wanted = ("--set", "data.folder=../data", "--set", "data.target=usps")
    code, _, shown = command("train", "digits", *wanted)
    assert (code, shown.count("\n")) == (2, 1)
    assert shown.startswith("error: usps")
    assert not any(tmp_path.iterdir())


def test_a_reader_that_has_enough_is_no_mistake(tmp_path: Path) -> None:
    program = subprocess.Popen(
        [sys.executable, "-m", "dualstudent", "recipes"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert program.stdout is not None
    program.stdout.close()
    _, messages = program.communicate()
    assert (program.returncode, messages) == (128 + signal.SIGPIPE, b"")


INTERRUPTED = """
import os, signal, sys
from dualstudent.__main__ import main

class Interrupts:
    def find_spec(self, name, *_):
        if name == package:
            os.kill(os.getpid(), signal.SIGINT)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever the tests were started with
    package, sys.argv = sys.argv[1], ["dualstudent", "train", "demo"]
    sys.meta_path.insert(0, Interrupts())
    main()
"""


@pytest.mark.parametrize("package", ["typer", "numpy.linalg", "torch.nn", "pydantic.main"])
def test_ctrl_c_while_packages_load_ends_without_a_word(package: str, tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, package],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (finished.returncode, finished.stdout, finished.stderr) == (-signal.SIGINT, "", "")
    assert not any(tmp_path.iterdir())


def test_names_are_printed_as_they_are(command: Command) -> None:
    assert ":x:[/red]" in command("evaluate", ":x:[/red]")[2]


def test_a_mistake_shows_no_traceback_in_a_real_process(tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "dualstudent", "reproduce"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 2
    assert finished.stderr.startswith("error: ")
    assert finished.stderr.count("\n") == 1
