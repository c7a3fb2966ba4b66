from pathlib import Path

import pytest

from dualstudent.data.broken import Tally
from dualstudent.data.files import DataWarning
from dualstudent.errors import UserError


def test_each_is_named_once_in_the_log_also_after_a_new_start(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    for _ in range(2):
        tally = Tally(0.5)
        tally.write_to(log)
        tally.add(10, ["a.JPEG: cut off", "b.JPEG: no image"])
        tally.add(10, ["a.JPEG: cut off"])

    assert log.read_text() == "a.JPEG: cut off\nb.JPEG: no image\n"
    assert tally.different == 2


def test_without_broken_ones_there_is_no_log(tmp_path: Path) -> None:
    tally = Tally(0)
    tally.write_to(tmp_path / "log.txt")
    tally.add(100, [])

    assert not any(tmp_path.iterdir())
    assert tally.different == 0


def test_without_a_log_there_is_a_warning() -> None:
    with pytest.warns(DataWarning, match=r"left out: a\.JPEG: cut off"):
        Tally(0.5).add(10, ["a.JPEG: cut off"])


def test_the_share_counts_from_a_thousand_on(tmp_path: Path) -> None:
    tally = Tally(0.01)
    tally.write_to(tmp_path / "log.txt")
    tally.add(10, [f"{i}.JPEG: cut off" for i in range(10)])  # all of the first, but only ten

    with pytest.raises(UserError, match=r"11 of 11 images looked at .* last one was 10\.JPEG"):
        tally.add(1, ["10.JPEG: cut off"])
    assert len((tmp_path / "log.txt").read_text().splitlines()) == 11


def test_the_share_is_of_all_that_was_looked_at(tmp_path: Path) -> None:
    tally = Tally(0.01)
    tally.write_to(tmp_path / "log.txt")
    tally.add(5000, ["a.JPEG: cut off"] * 50)

    with pytest.raises(UserError, match=r"more than data\.broken_share = 0\.01"):
        tally.add(1, ["a.JPEG: cut off"])


def test_a_share_of_0_accepts_none(tmp_path: Path) -> None:
    tally = Tally(0)
    tally.write_to(tmp_path / "log.txt")
    with pytest.raises(UserError, match="1 of 500 images"):
        tally.add(500, ["a.JPEG: cut off"])
