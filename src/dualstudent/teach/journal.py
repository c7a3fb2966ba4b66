"""The journal of labeling: a CSV file that only ever grows, and that ``dualstudent train`` reads.

One row per image as it was found, then one per decision; the last row of an image counts. Undoing
is a row, too. Every row is on disk before anybody is told that it is; all rows of a decision but
the last say that more follow, so that one which was cut off counts as a whole or not at all.
"""

import csv
import io
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path

from dualstudent.data.images.tables import MORE, escape_cell, read_whole_rows, unescape_cell
from dualstudent.errors import UserError


@dataclass(frozen=True)
class Row:
    """A row of the journal; all values are text.

    Attributes:
        path: of the image, relative to the journal or absolute; empty if the row is about a class.
        label: its class from now on; empty for none.
        part: ``"train"`` or ``"test"``.
        event: what happened, such as "labeled" or "undone".
        who: who did it.
        when: UTC, as ISO 8601 has it.
        action: number of the decision; those of many images at once have the same.
        note: "sample" for images that measure the model; the former name of a class, or its place;
            the event of an image that is gone.
    """

    path: str
    label: str = ""
    part: str = "train"
    event: str = "listed"
    who: str = ""
    when: str = ""
    action: str = ""
    note: str = ""


COLUMNS = tuple(field.name for field in fields(Row))


class Journal:
    """An append-only CSV file; used by one process at a time.

    Args:
        path: the file; is created with a header if it does not exist. What a killed process has
            written of a decision is cut off: nobody was told about it.

    Raises:
        UserError: if the file is not a journal.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._check_header()
        self._length = self._find_end()
        os.ftruncate(self._file, self._length)
        if self._length == 0:
            self._write(_format([COLUMNS]))
            _sync_folder(path.parent)

    def read(self) -> Iterator[Row]:
        """Read all rows.

        Raises:
            UserError: if a row has another form.
        """
        with self.path.open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file, strict=True)
            try:
                next(rows)  # the header
                for cells in rows:
                    row = Row(*map(unescape_cell, cells))
                    yield replace(row, action=row.action.removesuffix(MORE))
            except (TypeError, UnicodeDecodeError, csv.Error) as error:
                where = f"{self.path}: line {rows.line_num}"
                raise UserError(f"{where} is not a row of {len(COLUMNS)} cells in UTF-8") from error

    def append(self, rows: Iterable[Row]) -> None:
        """Write rows, all or none, also if killed; they are on disk when this returns.

        Raises:
            OSError: if they cannot be written, as when the disk is full; the file is as before.
        """
        all_ = list(rows)
        marked = [replace(row, action=row.action + MORE) for row in all_[:-1]]
        self._write(_format(map(escape_cell, astuple(row)) for row in (*marked, *all_[-1:])))

    def close(self) -> None:
        os.close(self._file)

    def _write(self, content: bytes) -> None:
        try:
            written = 0
            while written < len(content):
                written += os.write(self._file, content[written:])
            os.fsync(self._file)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file, self._length)
            error.filename = error.filename or str(self.path)
            raise
        self._length += len(content)

    def _check_header(self) -> None:
        """Check that the file is a journal, maybe one whose header was cut off by a kill."""
        header = _format([COLUMNS])
        begin = os.pread(self._file, len(header), 0)
        if not header.startswith(begin):
            self.close()
            raise UserError(
                f"{self.path}: is not a journal of labels, as it does not begin with "
                f"{','.join(COLUMNS)}; choose another --out"
            )

    def _find_end(self) -> int:
        """Return the length of all complete decisions in bytes."""
        errors = "surrogateescape"  # it may end within a letter
        try:
            with self.path.open(encoding="utf-8", errors=errors, newline="") as file:
                return sum(len(line.encode(errors=errors)) for line in read_whole_rows(file))
        except csv.Error as error:
            self.close()
            raise UserError(f"{self.path}: is not a journal of labels: {error}") from error


def read_number(text: str) -> int:
    """Read a number of few digits; −1 if it is none."""
    return int(text) if text.isdecimal() and len(text) < 10 else -1


def _format(rows: Iterable[Iterable[str]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _sync_folder(folder: Path) -> None:
    """Make sure that a new file in the folder is found after a power failure."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
