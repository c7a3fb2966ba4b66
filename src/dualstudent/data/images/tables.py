"""Lists tables of paths and labels, in CSV or Parquet files."""

import csv
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dualstudent.data.datasets import Part
from dualstudent.data.images.listing import UNKNOWN, Listing, sort_naturally
from dualstudent.errors import UserError, raise_problems

PATH_NAMES = ("path", "file", "filename", "file_name", "filepath", "file_path", "image")
LABEL_NAMES = ("label", "class", "category", "target")
PART_NAMES = ("part", "split")
DOMAIN_NAME = "domain"
EVENT_NAME = "event"  # of a journal, which 'dualstudent teach' writes
_ACTION_NAME = "action"  # of a journal
MORE = "&"  # at the end of an action: further rows of it follow, and count together or not at all
GONE, NONE_OF_THESE = "gone", "none of these"  # events after which an image is not used
_OF_PREDICTIONS = frozenset({"probability", "stable"})  # columns of 'dualstudent predict'
_PARTS: dict[str, Part] = {"": "train", "train": "train", "training": "train", "test": "test"}
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_PARQUET_BEGINS = b"PAR1"
_SHOWN = 10  # files that do not exist
_MOST_ROWS = 10_000_000  # a small Parquet file may hold any number of equal rows


@dataclass(frozen=True)
class Columns:
    """Names of the columns; None for the first of the usual names that exists, "" for none.

    Attributes:
        path: paths of images, relative to the table; usual: path, file, filename, …, image.
        label: labels, blank where unlabeled; usual: label, class, category, target.
        part: train or test, blank for train; usual: part, split; may be missing.
        domain: source or target; usual: domain; may be missing.
    """

    path: str | None = None
    label: str | None = None
    part: str | None = None
    domain: str | None = None


@dataclass(frozen=True)
class _Row:
    where: str
    path: str
    label: str
    part: str
    domain: str | None
    event: str | None


def escape_cell(text: str) -> str:
    """Put an apostrophe before text that a spreadsheet would compute; see :func:`unescape_cell`.

    Example:
        >>> escape_cell("=1+1"), escape_cell("cat")
        ("'=1+1", 'cat')
    """
    return f"'{text}" if _FORMULA.match(text) else text


def unescape_cell(text: str) -> str:
    """Return the text that :func:`escape_cell` was given.

    Example:
        >>> unescape_cell("'=1+1"), unescape_cell("'cat'")
        ('=1+1', "'cat'")
    """
    return text[1:] if text[:1] == "'" and _FORMULA.match(text) else text


def list_table(table: Path, columns: Columns | None = None) -> Listing:
    """List the images of a CSV or Parquet file with one row per image.

    CSV files are UTF-8 text with a header, separated by commas, semicolons or tabs; an apostrophe
    before one of = + - @ is not part of the text. Parquet needs pyarrow. A column ``domain`` says
    source or target; test images of the source are not used then. A table with a column ``event``
    is a journal of labeling: the last row of an image counts.

    Args:
        table: path of the file.
        columns: names of the columns.

    Raises:
        UserError: if the file cannot be read, or rows are wrong or contradict each other.
    """
    with table.open("rb") as file:
        is_parquet = file.read(len(_PARQUET_BEGINS)) == _PARQUET_BEGINS
    if table.suffix.lower() == ".parquet" and not is_parquet:
        raise UserError(f"{table}: is not a table: broken Parquet, or none at all")
    read = _read_parquet if is_parquet else _read_csv
    files: dict[str, _Row] = {}
    problems = []
    for row in _settle(read(table, columns or Columns())):
        wrong = _find_problem(row)
        if wrong is None:
            before = files.setdefault(os.path.normpath(table.parent / row.path), row)
            wrong = _find_contradiction(before, row)
        if wrong is not None:
            problems.append(wrong)
    raise_problems([*problems, *_find_missing(table, files)], str(table))
    used = {path: row for path, row in files.items() if not _is_unused(row)}
    classes = sort_naturally({row.label for row in used.values() if row.label})
    numbers = {name: number for number, name in enumerate(classes)} | {"": -1}
    return Listing(
        str(table),
        paths=tuple(Path(path) for path in used),
        labels=tuple(numbers[row.label] for row in used.values()),
        parts=tuple(_PARTS[row.part] for row in used.values()),
        classes=tuple(classes),
        targets=tuple(row.domain == "target" for row in used.values() if row.domain is not None),
    )


def _settle(rows: Iterable[_Row]) -> Iterator[_Row]:
    """Yield the rows; of a journal only the last one of each image that is still to be used."""
    last: dict[str, _Row] = {}
    for row in rows:
        if row.event is None:
            yield row
        elif row.path:  # others are about classes
            last[row.path] = row
    yield from (row for row in last.values() if row.event not in (GONE, NONE_OF_THESE))


def _is_unused(row: _Row) -> bool:
    """Whether an image of the source cannot help to adapt: without a label, or for test."""
    return row.domain == "source" and (not row.label or _PARTS[row.part] == "test")


def _find_problem(row: _Row) -> str | None:
    if "\0" in row.path + row.label:
        return f"{row.where} has a NUL byte; is this a table?"
    if not row.path:
        return f"{row.where} has no path"
    if row.part not in _PARTS:
        return (
            f"{row.where} is in part {row.part!r}; use train or test "
            "(validation is taken from the labeled images)"
        )
    if row.domain not in (None, "source", "target"):
        return (
            f"{row.where} is of the domain {row.domain!r}; use source or target "
            "(data.domain_column names another column, '' none)"
        )
    if row.label.casefold() in UNKNOWN:
        return f"{row.where} has label {row.label}; leave the label blank where there is none"
    return None


def _find_contradiction(before: _Row, row: _Row) -> str | None:
    if (before.label, before.part, before.domain) == (row.label, row.part, row.domain):
        return None
    return (
        f"{row.path} is given twice, {_describe(before)} in {before.where} and "
        f"{_describe(row)} in {row.where}; keep one"
    )


def _find_missing(table: Path, files: dict[str, _Row]) -> Iterator[str]:
    rows = [row for path, row in files.items() if not os.path.isfile(path)]  # noqa: PTH113
    if rows:
        some = ", ".join(f"{row.path} in {row.where}" for row in rows[:_SHOWN])
        yield (
            f"{len(rows)} file(s) do not exist, such as {some}; paths are relative to "
            f"{table.absolute().parent}"
        )


def _describe(row: _Row) -> str:
    of_domain = "" if row.domain is None else f" of the {row.domain}"
    return f"{row.label or 'unlabeled'} for {_PARTS[row.part]}{of_domain}"


def _read_csv(table: Path, columns: Columns) -> Iterator[_Row]:
    try:
        with table.open(encoding="utf-8-sig", newline="", errors="surrogateescape") as file:
            first = file.readline()
        delimiter = _find_delimiter(first)
        is_journal = EVENT_NAME in first.strip().lower().split(delimiter)
        # The last row of a journal may end within a letter; it is cut off.
        errors = "surrogateescape" if is_journal else "strict"
        with table.open(encoding="utf-8-sig", newline="", errors=errors) as file:
            lines = read_whole_rows(file, delimiter) if is_journal else file
            rows = csv.reader(lines, delimiter=delimiter, strict=True)
            header = next(rows, [])
            places = _find_columns(table, header, columns)
            for cells in filter(None, rows):
                where = f"line {rows.line_num}"
                if len(cells) > len(header):
                    raise UserError(
                        f"{table}: {where} has {len(cells)} cells, the header {len(header)}; "
                        'put names with commas in them into "quotes"'
                    )
                yield _make_row(where, [unescape_cell(cell) for cell in cells], places)
    except UnicodeDecodeError as error:
        raise UserError(
            f"{table}: is neither Parquet nor UTF-8 text; give a folder of images or a table (from "
            "a spreadsheet, saved as 'CSV UTF-8')"
        ) from error
    except csv.Error as error:
        raise UserError(f"{table}: is not a table: {error} (line {rows.line_num})") from error


def read_whole_rows(lines: Iterable[str], delimiter: str = ",") -> Iterator[str]:
    r"""Yield the lines of a journal without the last decision if not all its rows were written.

    Example:
        >>> list(read_whole_rows(["path,label\n", '"a\n', 'b",cat\n', '"c\n', "d"]))
        ['path,label\n', '"a\n', 'b",cat\n']
        >>> list(read_whole_rows(["path,action\n", "a,1&\n", "b,1\n", "a,2&\n"]))
        ['path,action\n', 'a,1&\n', 'b,1\n']
    """
    held, row, quotes, place = list[str](), list[str](), 0, -1
    for line in lines:
        row.append(line)
        quotes += line.count('"')
        if quotes % 2 or not line.endswith("\n"):
            continue
        cells = next(csv.reader(row, delimiter=delimiter))
        held += row
        row.clear()
        if place < 0:
            names = [cell.strip().lower() for cell in cells]
            place = names.index(_ACTION_NAME) if _ACTION_NAME in names else len(names)
        if not "".join(cells[place : place + 1]).endswith(MORE):
            yield from held
            held.clear()


def _find_delimiter(header: str) -> str:
    """Return a comma, or a semicolon or tab if the header has no comma but one of these."""
    return next((mark for mark in ",;\t" if mark in header), ",")


def _read_parquet(table: Path, columns: Columns) -> Iterator[_Row]:
    try:
        import pyarrow  # noqa: PLC0415  an extra: most people have CSV
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as error:
        raise UserError(
            f"{table}: reading Parquet needs pyarrow; install the extra 'parquet', or save "
            "the table as CSV"
        ) from error
    try:
        with parquet.ParquetFile(table) as file:
            if file.metadata.num_rows > _MOST_ROWS:
                raise UserError(f"{table}: has more than {_MOST_ROWS:,} rows; split it")
            places = _find_columns(table, file.schema_arrow.names, columns)
            wanted = [file.schema_arrow.names[place] for place in places if place is not None]
            content = file.read(columns=wanted)
            places = _find_columns(table, content.column_names, columns)
            values = [column.to_pylist() for column in content.columns]
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise UserError(f"{table}: is not a table: broken Parquet ({error})") from error
    for number, cells in enumerate(zip(*values, strict=True), start=1):
        yield _make_row(f"row {number}", [_to_text(cell) for cell in cells], places)


def _to_text(cell: Any) -> str:
    """Convert a cell to text: blank for missing values, 3.0 as "3"."""
    if cell is None or cell != cell:  # noqa: PLR0124  NaN is not itself
        return ""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


def _make_row(where: str, cells: Sequence[str], places: Sequence[int | None]) -> _Row:
    path, label, part, domain, event = (
        cells[place] if place is not None and place < len(cells) else "" for place in places
    )
    known, told = (
        None if place is None else text.strip().lower()
        for place, text in zip(places[-2:], (domain, event), strict=True)
    )
    return _Row(where, path, label.strip(), part.strip().lower(), known, told)


def _find_columns(table: Path, header: Sequence[str], columns: Columns) -> tuple[int | None, ...]:
    """Find the positions of path, label, part, domain and event; the last three may be None."""
    names = [name.strip().lower() for name in header]
    path = _find_column(names, columns.path, PATH_NAMES)
    label = _find_column(names, columns.label, LABEL_NAMES)
    part = _find_column(names, columns.part, PART_NAMES)
    domain = _find_column(names, columns.domain, (DOMAIN_NAME,))
    if columns.label is None and set(names) >= _OF_PREDICTIONS:
        raise UserError(
            f"{table}: holds predictions, not labels (it has the columns "
            f"{' and '.join(sorted(_OF_PREDICTIONS))}); to learn from them, name the column of "
            "labels"
        )
    for kind, place, chosen, usual in (
        ("path", path, columns.path, PATH_NAMES),
        ("label", label, columns.label, LABEL_NAMES),
        ("part", part, columns.part, ()),
        ("domain", domain, columns.domain, ()),
    ):
        if place is None and (chosen or usual):
            raise UserError(
                f"{table}: has no column {chosen or ' or '.join(usual)}; it has "
                f"{', '.join(header) or 'none'} (separated by commas, semicolons or tabs). Another "
                f"name is set by check --{kind}-column and by data.{kind}_column"
            )
    return path, label, part, domain, _find_column(names, None, (EVENT_NAME,))


def _find_column(names: Sequence[str], chosen: str | None, usual: Iterable[str]) -> int | None:
    wanted = usual if chosen is None else filter(None, [chosen.strip().lower()])
    return next((names.index(name) for name in wanted if name in names), None)
