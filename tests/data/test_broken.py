from pathlib import Path

import pytest

from dualstudent.data.broken import Tally
from dualstudent.errors import DataWarning, UserError


def test_each_is_named_once_in_the_log_also_after_a_new_start(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    for _ in range(2):
        tally = Tally(0.5)
        tally.write_to(log)
        tally.add(10, ["a.JPEG: cut off", "b.JPEG: no image"])
        tally.add(10, ["a.JPEG: cut off"])

    assert log.read_text() == "a.JPEG: cut off\nb.JPEG: no image\n"
    assert tally.count == 2


def test_without_broken_ones_there_is_no_log(tmp_path: Path) -> None:
    tally = Tally(0)
    tally.write_to(tmp_path / "log.txt")
    tally.add(100, [])

    assert not any(tmp_path.iterdir())
    assert tally.count == 0


def test_without_a_log_there_is_a_warning() -> None:
    with pytest.warns(DataWarning, match=r"a\.JPEG: cut off"):
        Tally(0.5).add(10, ["a.JPEG: cut off"])


def test_the_share_counts_from_a_thousand_samples_on(tmp_path: Path) -> None:
    tally = Tally(0.01)
    tally.write_to(tmp_path / "log.txt")
    tally.add(10, [f"{i}.JPEG: cut off" for i in range(10)])  # all broken, but only ten

    assert not tally.too_many
    tally.add(1, ["10.JPEG: cut off"])
    assert tally.too_many
    with pytest.raises(UserError, match=r"11 of 11 images .* 10\.JPEG"):
        tally.raise_too_many()
    assert len((tmp_path / "log.txt").read_text().splitlines()) == 11


def test_the_share_counts_all_samples_read(tmp_path: Path) -> None:
    tally = Tally(0.01)
    tally.write_to(tmp_path / "log.txt")
    tally.add(5000, ["a.JPEG: cut off"] * 50)

    assert not tally.too_many
    tally.add(1, ["a.JPEG: cut off"])
    assert tally.too_many
    with pytest.raises(UserError, match=r"data\.broken_share = 0\.01"):
        tally.raise_too_many()


def test_a_share_of_0_accepts_none(tmp_path: Path) -> None:
    tally = Tally(0)
    tally.write_to(tmp_path / "log.txt")
    tally.add(500, ["a.JPEG: cut off"])
    assert tally.too_many
    with pytest.raises(UserError, match="1 of 500 images"):
        tally.raise_too_many()


def test_only_the_leader_writes_what_each_process_finds_once(tmp_path: Path) -> None:
    leader, follower = Tally(0.5), Tally(0.5)
    leader.write_to(tmp_path / "log.txt")
    follower.keep_for_leader()
    leader.add(10, ["a.JPEG: cut off"])
    for _ in range(2):
        follower.add(10, ["a.JPEG: cut off", "b.JPEG: no image"])
    assert (tmp_path / "log.txt").read_text() == "a.JPEG: cut off\n"
    assert follower.has_unheard
    leader.report(follower.take_unheard())

    assert (tmp_path / "log.txt").read_text() == "a.JPEG: cut off\nb.JPEG: no image\n"
    assert leader.count == 2
    assert not follower.has_unheard
    assert follower.take_unheard() == []


def test_too_many_broken_images_of_another_process_are_in_the_log(tmp_path: Path) -> None:
    tally = Tally(0.01)
    tally.write_to(tmp_path / "log.txt")
    with pytest.raises(UserError, match=r"log\.txt .*data\.broken_share"):
        tally.raise_too_many()
