"""Where pages go, by the command line: what is written, and what is never overwritten."""

from functools import partial
from pathlib import Path

import pytest

from dualstudent import Run
from tests.support.command import Command


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command) -> Command:
    """The command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return partial(command, "report")


def test_a_page_is_written_and_replaced_but_nothing_else_is(
    report: Command, small_run: Run
) -> None:
    code, output, _ = report(small_run.folder, "-o", "page.html")
    assert (code, output) == (0, "page.html\n")
    page = Path("page.html").read_bytes()
    Path("page.html").write_bytes(page[:2000])  # an older one
    assert report(small_run.folder, "-o", "page.html")[0] == 0
    assert Path("page.html").read_bytes() == page

    Path("mine.html").write_text("<html>my own</html>")
    code, _, messages = report(small_run.folder, "-o", "mine.html")
    assert code == 2
    assert messages.startswith("error: mine.html ")
    assert Path("mine.html").read_text() == "<html>my own</html>"
    assert sorted(path.name for path in Path().iterdir()) == ["mine.html", "page.html"]


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ((), "-o FILE.html"),
        (("-o", "."), ". is a folder"),
        (("-o", "no/where/x.html"), "no/where"),
    ],
)
def test_a_wrong_place_is_refused_before_anything_is_looked_at(
    report: Command,
    small_run: Run,
    output: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr("dualstudent.report.page.page.collect_run_data")
    code, printed, messages = report(small_run.folder, small_run.folder, *output)
    assert (code, printed) == (2, "")
    assert message in messages
    assert not list(Path().iterdir())


def test_a_link_that_leads_nowhere_stays(report: Command, small_run: Run) -> None:
    link = Path("link.html")
    link.symlink_to("not-mounted/page.html")
    code, _, messages = report(small_run.folder, "-o", link)
    assert code == 2
    assert messages.startswith("error: link.html ")
    assert link.is_symlink()
    assert list(Path().iterdir()) == [link]


def test_a_run_of_another_version_is_refused(report: Command, small_run: Run) -> None:
    Path("old").mkdir()
    (Path("old") / "recipe.toml").write_bytes(small_run.recipe.read_bytes())
    (Path("old") / "run.json").write_text('{"format": 1}')
    code, _, messages = report("old")
    assert code == 2
    assert "old has format 1" in messages
