"""Published files: downloads them, and checks that they are what was published."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import IO, NoReturn

import pooch

from dualstudent.data.paths import ANOTHER_FOLDER, path_exists, raise_denied
from dualstudent.errors import DataWarning, UserError
from dualstudent.sealed import hash_file


@dataclass(frozen=True)
class PublishedFile:
    """A file as its authors publish it.

    Attributes:
        name: file name.
        address: URL of its folder.
        sha256: SHA-256 of its content.
    """

    name: str
    address: str
    sha256: str


def fetch(file: PublishedFile, folder: Path) -> Path:
    """Return the path of a file in ``folder``; download and verify it if it is missing.

    Raises:
        UserError: if that is not possible.
    """
    path = folder / file.name
    if path_exists(path):
        return path
    pooch.get_logger().setLevel("WARNING")
    try:
        pooch.retrieve(
            url=file.address + file.name,
            known_hash=f"sha256:{file.sha256}",
            path=folder,
            fname=file.name,
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
            f"{file.name} from {file.address} is not the published file: its SHA-256 is not "
            f"{file.sha256}; try again later or put the file into {folder}"
        ) from error
    return path


@contextmanager
def raise_damaged(
    path: Path, complaint: str, broken: type[Exception] | tuple[type[Exception], ...]
) -> Iterator[None]:
    """Raise a UserError if a published file may not be read or is damaged.

    Args:
        path: path of the file.
        complaint: what to say of the file if one of the errors ``broken`` occurs.
        broken: errors that its reader raises if it is damaged, or another kind of file.
    """
    with raise_denied(path):
        try:
            yield
        except (PermissionError, MemoryError, UserError):
            raise  # not the fault of the file, or explained already
        except broken as error:
            refuse(path, f"{complaint} ({error})")


def read_unpacked(path: Path, stream: IO[bytes] | BufferedIOBase, most_bytes: int) -> bytes:
    """Read all of a compressed file: a few bytes of it may unpack to any number.

    Raises:
        UserError: if there are more than ``most_bytes``.
    """
    content = stream.read(most_bytes + 1)
    if len(content) > most_bytes:
        refuse(path, f"holds more than {most_bytes / 1e6:,.0f} MB")
    return content


def refuse(path: Path, why: str, delete: str = "it") -> NoReturn:
    """Raise a UserError about a file that cannot be the published one.

    Args:
        path: path of the file.
        why: why it cannot be that one.
        delete: what to delete so that the published one is downloaded.
    """
    raise UserError(f"{path}: {why}; delete {delete} to download the published one")


def warn_if_unpublished(
    data_set: str, paths: Sequence[tuple[Path, str | None]], found: int, expected: int
) -> None:
    """Warn once about files that are well formed but not the published ones.

    Args:
        data_set: name of the data set.
        paths: its files, each with its published SHA-256 if known.
        found: number of images in them.
        expected: published number of images.
    """
    changed = [path.name for path, sha256 in paths if sha256 and hash_file(path) != sha256]
    if changed or found != expected:
        warnings.warn(
            f"{data_set}: {', '.join(changed) or 'the data'} in {paths[0][0].parent} "
            f"differ{'s' if len(changed) < 2 else ''} from the published files; the structure was "
            f"checked and is right: {found:,} images of {expected:,} published; if "
            "that is not meant, put the published files there",
            DataWarning,
            stacklevel=2,
        )
