"""Labels on disk: whatever happens, what was said to be saved is there."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dualstudent import UserError
from dualstudent.data.images.tables import list_table
from dualstudent.teach.journal import Journal, Row
from tests.support.disk import full_disk

HOSTILE = ('=1+1, "<b>\nnew line', "Åse Øy", "'quoted'")


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "labels.csv")
    rows = [Row(f"{name}.png", name, event="labeled", who=name, note=name) for name in HOSTILE]
    journal.append(rows[:1])
    journal.append(rows[1:])
    journal.close()
    again = Journal(tmp_path / "labels.csv")
    assert list(again.read()) == rows
    again.close()


def test_a_row_that_was_cut_off_is_gone_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    journal = Journal(path)
    journal.append([Row("a\n,.png", "Øy", event="labeled")])
    whole = path.read_bytes()
    journal.append([Row('b\n"x".png', "Øy", event="labeled")])
    longer = path.read_bytes()
    journal.close()
    for length in range(len(whole), len(longer)):
        path.write_bytes(longer[:length])
        again = Journal(path)
        assert [row.path for row in again.read()] == ["a\n,.png"], length
        again.append([Row("c.png")])
        assert [row.path for row in again.read()] == ["a\n,.png", "c.png"], length
        again.close()


def test_what_train_reads_of_it(tmp_path: Path) -> None:
    for name in "abcdef":
        (tmp_path / f"{name}.png").write_bytes(b"")
    journal = Journal(tmp_path / "labels.csv")
    journal.append(Row(f"{name}.png") for name in "abcdef")
    journal.append([Row("", "cat", event="class added")])
    journal.append([Row("a.png", "cat", event="labeled"), Row("b.png", "dog", event="labeled")])
    journal.append([Row("a.png", "dog", event="labeled"), Row("d.png", "dog", event="labeled")])
    journal.append([Row("b.png", "cat", event="labeled"), Row("d.png", "", event="undone")])
    journal.append([Row("e.png", "cat", event="gone"), Row("f.png", "", event="none of these")])
    journal.close()
    with (tmp_path / "labels.csv").open("ab") as file:
        file.write('"c.png",ö'.encode()[:-1])  # killed in the middle of a letter
    listing = list_table(tmp_path / "labels.csv")
    found = {path.stem: label for path, label in zip(listing.paths, listing.labels, strict=True)}
    assert listing.classes == ("cat", "dog")
    assert found == {"a": 1, "b": 0, "c": -1, "d": -1}


def test_a_full_disk_changes_nothing_and_is_said(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "labels.csv")
    journal.append([Row("a.png", "cat")])
    before = journal.path.read_bytes()
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with full_disk(len(before) + 5), pytest.raises(OSError, match=r"labels\.csv"):
        journal.append([Row("a-long-name.png", "dog")])
    assert journal.path.read_bytes() == before
    journal.append([Row("b.png", "dog")])
    assert [row.label for row in journal.read()] == ["cat", "dog"]
    journal.close()


PROGRAM = """
import sys
from pathlib import Path
from dualstudent.teach.journal import Journal, Row

journal = Journal(Path(sys.argv[1]))
for number in range(10 ** 6):
    journal.append([Row(f"{number}.png", "cat", event="labeled")])
    print(number, flush=True)
"""


def test_every_row_that_was_said_to_be_saved_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    command = [sys.executable, "-c", PROGRAM, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(20):
            process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
        said = 20 + len(process.stdout.read().split())
    journal = Journal(path)
    assert len(list(journal.read())) >= said
    journal.close()


@pytest.mark.parametrize(
    "content",
    ["path,label\n", "a,b,c\n1,2,3\n", "x\n", "path,label\na.png,cat\nb.png,dog", 'a,"b\nc,d\n'],
)
def test_another_file_is_left_alone(tmp_path: Path, content: str) -> None:
    (tmp_path / "labels.csv").write_text(content)
    with pytest.raises(UserError, match=r"labels\.csv"):
        Journal(tmp_path / "labels.csv")
    assert (tmp_path / "labels.csv").read_text() == content


def test_a_journal_with_a_cell_too_large_is_refused_in_a_line(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "labels.csv")
    journal.append([Row("a" * 200_000)])
    journal.close()
    with pytest.raises(UserError, match=r"labels\.csv"):
        Journal(tmp_path / "labels.csv")
