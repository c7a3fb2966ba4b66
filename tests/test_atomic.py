import os
from pathlib import Path

import pytest

from dualstudent import UserError
from dualstudent.atomic import atomic_write, create_file, name_partial
from tests.support.processes import dead_process


def test_the_old_content_stays_until_the_new_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")
    with atomic_write(path) as partial:
        partial.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_an_interrupted_write_leaves_nothing(tmp_path: Path) -> None:
    def stopped_halfway() -> None:
        with atomic_write(path) as partial:
            partial.write_text("half")
            raise KeyboardInterrupt

    path = tmp_path / "file.txt"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt):
        stopped_halfway()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_overwrites_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("precious")
    with pytest.raises(UserError, match="exists"), create_file(path):
        raise AssertionError
    assert path.read_text() == "precious"
    with pytest.raises(UserError, match="folder"):
        create_file(tmp_path).__enter__()
    with pytest.raises(UserError, match=r"no folder .*nowhere"):
        create_file(tmp_path / "nowhere" / "file.txt").__enter__()


def test_an_error_names_the_final_path(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 250)  # with anything added too long for a file system
    with pytest.raises(OSError, match="too long") as error, create_file(long) as partial:
        partial.open("w")
    assert error.value.filename == str(long)


def test_other_partial_files_are_not_overwritten(tmp_path: Path) -> None:
    theirs = tmp_path / "file.txt.partial"
    theirs.write_text("precious")
    with atomic_write(tmp_path / "file.txt") as partial:
        partial.write_text("new")
    assert theirs.read_text() == "precious"


def test_what_killed_processes_left_behind_is_removed(tmp_path: Path) -> None:
    def left(name: str) -> Path:
        (tmp_path / name).write_text("half")
        return tmp_path / name

    def name(file: str, process: int) -> str:
        mine = name_partial(tmp_path / file).name
        return mine.replace(str(os.getpid()), str(process))

    ours = left(name("file.txt", dead_process()))
    kept = [
        left(name("file.txt", os.getppid())),  # its process still writes
        left(f"file.txt.elsewhere.{dead_process()}.partial"),  # of another machine, which may
        left(name("other.txt", dead_process())),
        left("file.txt.partial"),
        left("file.txt.12.partial.txt"),
    ]
    with atomic_write(tmp_path / "file.txt") as partial:
        partial.write_text("new")
    assert not ours.exists()
    assert set(tmp_path.iterdir()) == {*kept, tmp_path / "file.txt"}
