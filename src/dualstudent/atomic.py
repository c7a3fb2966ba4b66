"""Atomic writes: a file exists completely or not at all."""

import os
import platform
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from dualstudent.errors import UserError


@contextmanager
def atomic_write(path: Path, keep: Path | None = None) -> Iterator[Path]:
    """Yield a temporary path to write to; afterwards it is synced and replaces ``path``.

    If the block raises, the temporary file is removed and ``path`` is unchanged.

    Args:
        path: the file to write.
        keep: where the file that was at ``path`` is moved to; default: it is replaced.
    """
    partial = name_partial(path)
    try:
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        if keep is not None and path.exists():
            path.replace(keep)
        partial.replace(path)
    except OSError as error:
        # Name the file that the user knows; if the disk is full, the error names none.
        if error.filename in (None, str(partial)):
            error.filename = str(path)
        raise
    finally:
        with suppress(OSError):  # keep the first error
            partial.unlink()


def name_partial(path: Path) -> Path:
    """Name the file or folder that becomes ``path`` once it is complete.

    It has machine and process in its name, so that no other process writes to it. Those that
    processes of this machine left behind when they were killed are removed; of others, as on a
    shared disk, nobody knows here whether they still write.
    """
    machine = re.sub(r"\W", "-", platform.node())
    named = re.compile(re.escape(f"{path.name}.{machine}.") + r"(\d{1,9})\.partial")
    with suppress(OSError):  # cleaning up is not worth an error
        for beside in path.parent.iterdir():
            found = named.fullmatch(beside.name)
            if found and not _is_alive(int(found[1])):
                _remove(beside)
    return path.with_name(f"{path.name}.{machine}.{os.getpid()}.partial")


def _is_alive(process: int) -> bool:
    """Return whether another process has this id."""
    if process == os.getpid():  # in a container, every program may have the same
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to somebody else
        return True
    return True


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


@contextmanager
def create_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder to write to, which becomes ``path`` afterwards; nothing if it raises.

    Args:
        path: must not exist or be an empty folder.
    """
    partial = name_partial(path)
    partial.mkdir(parents=True)
    try:
        with name_file(path):
            yield partial
            partial.rename(path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


@contextmanager
def name_file(path: Path) -> Iterator[None]:
    """Add ``path`` to an error that names no file, as when the disk is full."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


@contextmanager
def create_file(path: Path) -> Iterator[Path]:
    """Like :func:`atomic_write`, for a path that must not exist yet."""
    check_free(path)
    with atomic_write(path) as partial:
        yield partial


@contextmanager
def create_text_file(path: Path) -> Iterator[TextIO]:
    """Open a new UTF-8 text file that appears once the block has ended without an error."""
    with (
        create_file(path) as partial,
        # File names may hold bytes that are not valid text; they are written unchanged.
        partial.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file,
    ):
        yield file


def check_free(path: Path) -> None:
    """Check that a new file can be written to ``path``.

    Raises:
        UserError: if something exists there, or its folder does not exist.
    """
    if path.is_dir():
        raise UserError(f"{path} is a folder; give a file in it, such as {path / 'name'}")
    if os.path.lexists(path):  # true for broken links, too
        raise UserError(f"{path} already exists; choose another file, or remove it first")
    if not path.parent.is_dir():
        raise UserError(f"{path}: there is no folder {path.parent}; make it first")
