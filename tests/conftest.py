import os
import sys
import warnings
from pathlib import Path

import pytest
from hypothesis import settings

from dualstudent import Run, train
from dualstudent.cli import main
from dualstudent.cli.console import console, messages
from dualstudent.recipes import chooser
from tests.support.command import Command
from tests.support.recipes import small_recipe

# A busy machine must not fail a test, and a failure must come back on the next run.
settings.register_profile("reproducible", deadline=None, derandomize=True)
settings.load_profile("reproducible")


@pytest.fixture(autouse=True)
def _cpu_without_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the same recipe be chosen on every CPU."""
    monkeypatch.setattr(chooser, "has_fast_bfloat16", lambda: False)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    folder = os.environ.get("DUALSTUDENT_DATA")
    if not folder:
        pytest.skip("needs the published files: set DUALSTUDENT_DATA to their folder")
    return Path(folder)


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run of Dual Student on real digits, to read from only."""
    return train(small_recipe(), tmp_path_factory.mktemp("runs") / "small")


@pytest.fixture(scope="session")
def teacher_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same of Mean Teacher: one network is exported, and none other is asked."""
    recipe = small_recipe("method.name=mean-teacher")
    return train(recipe, tmp_path_factory.mktemp("runs") / "teacher")


@pytest.fixture
def at_place(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work where the module's fixture ``place`` says, with a cache of its own."""
    monkeypatch.chdir(place)
    monkeypatch.setenv("DUALSTUDENT_CACHE", str(place / "cache"))


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The program, called in this process."""

    def call(*arguments: object) -> tuple[object, str, str]:
        capsys.readouterr()
        monkeypatch.setenv("COLUMNS", "200")
        for each in (console, messages):
            monkeypatch.setattr(each, "width", 200)  # else lines break as the terminal is wide
        monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
        monkeypatch.setattr(sys, "argv", ["dualstudent", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        return stop.value.code or 0, *capsys.readouterr()

    return call
