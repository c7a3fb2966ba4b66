"""Files that are there as a whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from dualstudent.errors import UserError


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Write to another name, which then takes the place of ``path``, on disk and all.

    What was written is removed if anything goes wrong, and ``path`` stays as it was.
    """
    # Of this process: nothing of the user's has such a name, and nobody else writes to it.
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        if error.filename == str(partial):  # a name that nobody but us knows
            error.filename = str(path)
        raise
    finally:
        with suppress(OSError):  # what went wrong first is what matters
            partial.unlink()


@contextmanager
def create_file(path: Path) -> Iterator[Path]:
    """Like :func:`atomic_write`, for a place where there must be nothing yet."""
    check_free(path)
    with atomic_write(path) as partial:
        yield partial


@contextmanager
def create_text_file(path: Path) -> Iterator[TextIO]:
    """A new file of UTF-8 text, which is there when all of it is written."""
    with (
        create_file(path) as partial,
        # Names of files may be bytes that are no text; they are written as they are.
        partial.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file,
    ):
        yield file


def check_free(path: Path) -> None:
    """Refuse a path where a new file would overwrite something, or cannot be.

    Raises:
        UserError: if there is something, or no folder to put it into.
    """
    if path.is_dir():
        raise UserError(f"{path} is a folder; give a file in it, such as {path / 'name'}")
    if os.path.lexists(path):  # also a link that leads nowhere is somebody's
        raise UserError(f"{path} already exists; choose another -o FILE, or remove it first")
    if not path.parent.is_dir():
        raise UserError(f"{path}: there is no folder {path.parent}; make it first")
