"""Thorough training: an ordinary run on the labels of a moment."""

import csv
import time
from pathlib import Path

import pytest

from dualstudent import UserError
from dualstudent.teach.images import find_collection
from dualstudent.teach.snapshot import list_rows
from dualstudent.teach.thorough import ThoroughTraining
from tests.support.command import Command
from tests.support.teaching import open_session, write_images

LIMIT = 300.0  # seconds; it takes a few, but the machine may be busy
SHORT = ("--set", "schedule.epochs=1", "--set", "data.image_size=16")


@pytest.mark.slow
def test_the_result_is_an_ordinary_run(tmp_path: Path, command: Command) -> None:
    session = open_session(write_images(tmp_path / "digits", 120))
    training = ThoroughTraining(session, SHORT)
    with pytest.raises(UserError, match="two classes"):
        training.start(tested=True)
    for number in range(60):
        session.set_label([number], session.find_file(number).name[0])
    session.set_aside([61], "none of these")
    training.start(tested=True)
    session.set_label([70], "later")  # does not change what is being trained
    with pytest.raises(UserError, match="running"):
        training.start(tested=True)
    begun = time.monotonic()
    while (found := training.look()) is not None and found.state == "running":
        assert time.monotonic() - begun < LIMIT
        training._process.wait(LIMIT)  # type: ignore[union-attr]
    assert found is not None
    assert (found.state, found.done, found.total) == ("finished", 1, 1), found.line
    assert training.list_finished() == ["1"]
    run = training.find_run("1")
    assert run.page.is_file()
    page, out = tmp_path / "page.html", tmp_path / "out.csv"
    assert command("report", run.folder, "--output", page)[0] == 0
    assert page.read_text() == run.page.read_text()
    assert command("predict", run.folder, session.collection.source, "--output", out)[0] == 0
    assert len(out.read_text().splitlines()) == 1 + 120
    assert command("export", run.folder, "--to", "safetensors")[0] == 0
    assert command("label", run.folder, "--output", tmp_path / "next.csv")[0] == 0
    with (tmp_path / "next.csv").open(newline="") as file:
        given = [row["label"] for row in csv.DictReader(file)]
    assert (len(given), given.count("")) == (119, 59)  # without the one of no class
    again = find_collection(run.folder)
    assert sum(bool(image.label) for image in again.images) == 60
    with pytest.raises(UserError):
        training.find_run("../1")
    session.close()


def test_the_sample_is_the_test_part_if_there_is_enough_of_it(tmp_path: Path) -> None:
    session = open_session(write_images(tmp_path / "digits", 100))
    sample = [n for n, entry in enumerate(session.labels.entries) if entry.in_sample]
    others = [n for n, entry in enumerate(session.labels.entries) if not entry.in_sample]
    session.set_label(others[:10], "a")
    session.set_label(others[10:20], "b")
    session.set_label(sample[:19], "a")
    assert {part for *_, part in list_rows(session, tested=True)} == {"train"}
    session.set_label(sample[19:20], "b")
    session.set_label(sample[20:21], "of no other image")
    parts = {number: part for number, _, part in list_rows(session, tested=True)}
    assert [n for n, part in parts.items() if part == "test"] == sample[:20]
    assert {part for *_, part in list_rows(session, tested=False)} == {"train"}
    session.close()
