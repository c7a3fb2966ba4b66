"""Where published files are found, how they are fetched, and whether they are what they claim."""

import hashlib
import os
import warnings
from dataclasses import dataclass
from pathlib import Path

import pooch

from dualstudent.errors import UserError


class DataWarning(UserWarning):
    """Data are usable but not what was expected."""


@dataclass(frozen=True)
class PublishedFile:
    """A file as its authors publish it."""

    name: str
    address: str
    md5: str


def data_folder(setting: Path | None = None) -> Path:
    """The setting if given, else ``$DUALSTUDENT_DATA``, else the user's cache folder."""
    if setting is not None:
        return setting.expanduser()
    if from_environment := os.environ.get("DUALSTUDENT_DATA"):
        return Path(from_environment).expanduser()
    return Path(pooch.os_cache("dualstudent"))


def cache_folder(setting: Path | None = None) -> Path:
    """For decoded images: the setting, else in ``$DUALSTUDENT_CACHE``, else the user's cache."""
    if setting is not None:
        return setting.expanduser()
    if from_environment := os.environ.get("DUALSTUDENT_CACHE"):
        return Path(from_environment).expanduser()
    return Path(pooch.os_cache("dualstudent")) / "decoded"


def fetch(file: PublishedFile, folder: Path) -> Path:
    """The file in ``folder``, downloaded and verified if it is not there yet."""
    path = folder / file.name
    if is_there(path):
        return path
    pooch.get_logger().setLevel("WARNING")
    try:
        pooch.retrieve(
            url=file.address + file.name, known_hash=f"md5:{file.md5}", path=folder, fname=file.name
        )
    except PermissionError as error:
        raise UserError(
            f"cannot write to {folder}: {error.strerror or error}; choose another data folder"
        ) from error
    except OSError as error:
        raise UserError(
            f"{file.name} is not in {folder} and could not be downloaded from {file.address} "
            f"({type(error).__name__}); put it into {folder} or set DUALSTUDENT_DATA"
        ) from error
    except ValueError as error:
        raise UserError(
            f"{file.name} from {file.address} is not the published file: its md5 is not "
            f"{file.md5}; try again later or put the file into {folder}"
        ) from error
    return path


def is_there(path: Path) -> bool:
    """Whether a file or folder exists; refused where the user may not even look."""
    try:
        path.stat()
    except PermissionError as error:
        raise UserError(
            f"cannot look for {path}: {error.strerror or error}; choose another data folder"
        ) from error
    except OSError:
        return False
    return True


def warn_if_unknown(
    data_set: str, paths: list[tuple[Path, PublishedFile | None]], found: int, expected: int
) -> None:
    """One warning for a data set whose files are well formed but not the published ones.

    A path without a published file has no known checksum: only the count can tell.
    """
    changed = [path.name for path, file in paths if file is not None and _md5(path) != file.md5]
    if changed or found != expected:
        warnings.warn(
            f"{data_set}: {', '.join(changed) or 'the data'} in {paths[0][0].parent} "
            f"differ{'s' if len(changed) < 2 else ''} from the published files; the structure was "
            f"checked and is right: {found:,} images of {expected:,} published",
            DataWarning,
            stacklevel=2,
        )


def _md5(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
