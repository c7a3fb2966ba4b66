"""Where published files are found, how they are fetched, and whether they are what they claim."""

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pooch

from dualstudent.data.paths import ANOTHER_FOLDER, path_exists, raise_denied
from dualstudent.errors import DataWarning, UserError


@dataclass(frozen=True)
class PublishedFile:
    """A file as its authors publish it."""

    name: str
    address: str
    md5: str


def fetch(file: PublishedFile, folder: Path) -> Path:
    """The file in ``folder``, downloaded and verified if it is not there yet."""
    path = folder / file.name
    if path_exists(path):
        return path
    pooch.get_logger().setLevel("WARNING")
    try:
        pooch.retrieve(
            url=file.address + file.name, known_hash=f"md5:{file.md5}", path=folder, fname=file.name
        )
    except PermissionError as error:
        raise UserError(
            f"cannot write to {folder}: {error.strerror or error}; {ANOTHER_FOLDER}"
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


@contextmanager
def reading(
    path: Path, complaint: str, broken: type[Exception] | tuple[type[Exception], ...]
) -> Iterator[None]:
    """Turns what goes wrong while a file is read into advice.

    Args:
        path: what is read.
        complaint: what to say of the file if one of the errors ``broken`` occurs.
        broken: what its reader raises if the file is damaged, or something else altogether.

    Raises:
        UserError: if read rights are missing, else :func:`refusal`.
    """
    with raise_denied(path):
        try:
            yield
        except (PermissionError, MemoryError):
            raise  # not the fault of the file
        except broken as error:
            raise refusal(path, f"{complaint} ({error})") from error


def refusal(path: Path, why: str, delete: str = "it") -> UserError:
    """What to raise about a file that cannot be the published one.

    Args:
        path: of the file.
        why: it cannot be that one.
        delete: what must go so that the published one is downloaded.
    """
    return UserError(f"{path}: {why}; delete {delete} to download the published one")


def warn_if_unpublished(
    data_set: str, paths: Sequence[tuple[Path, str | None]], found: int, expected: int
) -> None:
    """One warning for a data set whose files are well formed but not the published ones.

    Every path comes with its published md5; where that is not known, only the count can tell.
    """
    changed = [path.name for path, md5 in paths if md5 is not None and _md5(path) != md5]
    if changed or found != expected:
        warnings.warn(
            f"{data_set}: {', '.join(changed) or 'the data'} in {paths[0][0].parent} "
            f"differ{'s' if len(changed) < 2 else ''} from the published files; the structure was "
            f"checked and is right: {found:,} images of {expected:,} published; if "
            "that is not meant, put the published files there",
            DataWarning,
            stacklevel=2,
        )


def _md5(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
