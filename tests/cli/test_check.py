import shutil
from functools import partial
from pathlib import Path

import pytest

from tests.support.command import Command
from tests.support.pictures import save_picture


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
    assert "dual-student with quick-cnn" in output
    assert " MB of memory" in output
    assert messages.startswith("warning: ")
    assert messages.endswith("data/a/0.png = data/test/a/<b>it's,\\n[red]me.png\n")
    copy.rename("data/b/other.png")
    code, output, messages = check("data")
    assert code == 2
    assert "dual-student" not in output
    error = messages.splitlines()[0]
    assert error.startswith("error: ")
    assert error.endswith("data/a/0.png = data/b/other.png")


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
