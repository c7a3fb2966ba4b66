import shutil
from pathlib import Path

import pytest

from dualstudent import Run
from dualstudent.sealed import write_sealed
from tests.support.command import Command
from tests.support.disk import full_disk


@pytest.fixture
def run(small_run: Run, tmp_path: Path) -> Run:
    return Run(Path(shutil.copytree(small_run.folder, tmp_path / "run")))


@pytest.mark.filterwarnings("default")
def test_a_finished_run_is_shown_where_nothing_can_be_written(run: Run, command: Command) -> None:
    with full_disk():
        code, shown, messages = command("resume", run.folder)
    assert code == 0
    assert "has finished already" in shown
    assert "curves.png was not drawn" in messages
    assert not list(run.folder.glob("curves*"))


def test_names_of_networks_are_no_markup(run: Run, command: Command) -> None:
    result = run.read_result()
    figures = result["networks"]["student1"]
    hostile = {"headline": ["[/b]:x:"], "networks": {"[/b]:x:": figures}}
    write_sealed(run.result, result | hostile)
    code, shown, _ = command("resume", run.folder)
    assert code == 0
    assert "[/b]:x:" in shown
