import io
import shutil
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from dualstudent.cli.check import build_count_table, describe_finding, summarize_check
from dualstudent.data.images.check import DataCheck, Finding
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
    assert "fixmatch with whitened-cnn" in output
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


CHECK = DataCheck(
    name="my [red]data",
    labeled={"cat\n[bold]": 1200, "dog": 3},
    test={"cat\n[bold]": 0, "dog": 17},
    unlabeled=5_000,
    unreadable=0,
    smallest=(20, 30),
    largest=(3000, 4000),
    typical=480,
    is_gray=False,
    size=32,
    findings=(),
)


def shown(check: DataCheck) -> str:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(build_count_table(check))
    return console.export_text()


def test_the_table_counts_and_adds_and_takes_names_as_they_are() -> None:
    text = shown(CHECK)
    assert "my [red]data" in text
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines()]
    assert ["cat\\n[bold]", "1,200", "0"] in rows
    assert ["dog", "3", "17"] in rows
    assert ["all", "1,203", "17"] in rows


def test_the_summary_names_sizes_and_memory() -> None:
    line = summarize_check(CHECK)
    assert line.startswith("6,220 color images, 5,000 of them unlabeled")
    assert "from 30 × 20 to 4000 × 3000 pixels" in line
    assert "32 px 19.1 MB" in line  # 6220 · 3 · 32²
    assert "128 px 305.7 MB" in line


def test_a_finding_names_a_few_files() -> None:
    pairs = tuple((Path(f"a/{i}"), Path(f"b/{i}")) for i in range(5))
    assert describe_finding(Finding("warning", "leaks", pairs)) == (
        "leaks: a/0 = b/0, a/1 = b/1, a/2 = b/2, …"
    )
    assert describe_finding(Finding("warning", "none")) == "none"
