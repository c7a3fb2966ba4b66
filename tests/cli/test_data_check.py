import io
from pathlib import Path

from rich.console import Console

from dualstudent.cli.data_check import build_count_table, describe_finding, summarize_check
from dualstudent.data.images.check import DataCheck, Finding

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
