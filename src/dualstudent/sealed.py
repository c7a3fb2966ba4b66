"""JSON files that hold their own digest, so that a damaged one is never used."""

import hashlib
import json
from pathlib import Path
from typing import Any

from dualstudent.atomic import atomic_write
from dualstudent.errors import UserError, escape_line

_SEAL = "sha256"
_MOST_BYTES = 2**26  # far more than any of these files needs
_CHUNK = 2**20


def hash_file(path: Path, size: int | None = None) -> str:
    """Return the SHA-256 of the first ``size`` bytes of a file; default: of all.

    Raises:
        UserError: if it cannot be read.
    """
    digest = hashlib.sha256()
    try:
        rest = path.stat().st_size if size is None else size
        with path.open("rb") as file:
            while chunk := file.read(min(rest, _CHUNK)):
                digest.update(chunk)
                rest -= len(chunk)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    return digest.hexdigest()


def write_sealed(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON object and its digest to ``path`` atomically."""
    with atomic_write(path) as partial:
        sealed = content | {_SEAL: _hash(content)}
        partial.write_text(json.dumps(sealed, indent=1) + "\n")


def read_sealed(path: Path) -> tuple[dict[str, Any], bool]:
    """Read a JSON object, and whether it was sealed; earlier versions sealed nothing.

    Raises:
        UserError: if it cannot be read, or was changed since it was sealed.
    """
    content = parse_object(read_text(path, _MOST_BYTES), path)
    seal = content.pop(_SEAL, None)
    if seal not in (None, _hash(content)):
        raise UserError(f"{path}: is damaged or was edited; bring the file back from a copy")
    return content, seal is not None


def read_text(path: Path, most_bytes: int) -> str:
    """Read a UTF-8 file that may come from a stranger.

    Raises:
        UserError: if it cannot be read, or is no plain file of at most ``most_bytes``.
    """
    try:
        if not path.is_file():  # a device would never end
            raise UserError(f"{path}: is missing, or is no file")
        if path.stat().st_size > most_bytes:
            raise UserError(f"{path}: is larger than {most_bytes / 1e6:,.0f} MB")
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({escape_line(error)})") from error


def parse_object(text: str, where: object) -> dict[str, Any]:
    """Parse a JSON object.

    Raises:
        UserError: if ``text`` is none; begins with ``where``.
    """
    try:
        content = json.loads(text)
        json.dumps(content, ensure_ascii=False).encode()  # raises for half a character
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: cannot be read ({escape_line(error)})") from error
    if not isinstance(content, dict):
        raise UserError(f"{where}: cannot be read (it holds no JSON object)")
    return content


def _hash(content: dict[str, Any]) -> str:
    # Numbers and texts are the same after they were written and read.
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
