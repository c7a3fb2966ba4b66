"""Data and cache folders, and paths that the user may not read."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pooch

from dualstudent.errors import UserError

ANOTHER_FOLDER = "choose another data folder (--set data.folder=… or DUALSTUDENT_DATA)"
RIGHTS_TO_DATA = f"ask for read rights, or {ANOTHER_FOLDER}"
RIGHTS_TO_IMAGES = "ask for read rights, or give other images"  # of one's own


def find_data_folder(setting: Path | None = None) -> Path:
    """Return the setting if given, else ``$DUALSTUDENT_DATA``, else the user's cache folder."""
    return _find_folder(setting, "DUALSTUDENT_DATA", Path(pooch.os_cache("dualstudent")))


def find_cache_folder(setting: Path | None = None) -> Path:
    """Return the folder for decoded images, by default in the user's cache folder.

    The setting comes first, then ``$DUALSTUDENT_CACHE``.
    """
    default = Path(pooch.os_cache("dualstudent")) / "decoded"
    return _find_folder(setting, "DUALSTUDENT_CACHE", default)


def _find_folder(setting: Path | None, variable: str, default: Path) -> Path:
    return (setting or Path(os.environ.get(variable) or default)).expanduser()


def path_exists(path: Path, advice: str = RIGHTS_TO_DATA) -> bool:
    """Return whether a file or folder exists.

    Raises:
        UserError: with ``advice`` if the user has no right to know.
    """
    try:
        path.stat()
    except PermissionError as error:
        raise UserError(f"cannot look for {path}: {error.strerror or error}; {advice}") from error
    except OSError:
        return False
    return True


@contextmanager
def raise_denied(path: Path, advice: str = RIGHTS_TO_DATA) -> Iterator[None]:
    """Raise a UserError with ``advice`` if the file or folder ``path`` may not be read."""
    try:
        yield
    except PermissionError as error:
        raise UserError(
            f"{error.filename or path}: may not be read ({error.strerror or error}); {advice}"
        ) from error
