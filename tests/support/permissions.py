"""Files and folders that may not be read, even by an administrator, whom rights do not stop."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dualstudent.errors import UserError

TO_PUBLISHED_DATA = (
    "ask for read rights, or choose another data folder (--set data.folder=… or DUALSTUDENT_DATA)"
)
TO_OWN_IMAGES = "ask for read rights, or give other images"

_denied: set[Path] = set()


def _deny(event: str, arguments: tuple[object, ...]) -> None:
    """Whoever opens a file or lists a folder, by whatever function, comes past here."""
    if _denied and event in ("open", "os.scandir") and isinstance(arguments[0], str | os.PathLike):
        path = Path(arguments[0])
        if path in _denied:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))


sys.addaudithook(_deny)  # for good: hooks cannot be removed


@contextmanager
def refused_without_rights_to(path: Path, advice: str = TO_PUBLISHED_DATA) -> Iterator[None]:
    """What is done within may not read ``path``, and must say so, with what to do about it."""
    assert path.exists()
    _denied.add(path)
    try:
        with pytest.raises(UserError) as refused:
            yield
    finally:
        _denied.remove(path)
    assert str(refused.value) == f"{path}: may not be read (Permission denied); {advice}"
