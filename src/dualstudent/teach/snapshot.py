"""The labels of a moment: a table to train on, and folders of classes."""

import csv
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from dualstudent.atomic import create_folder, create_text_file
from dualstudent.data.images.tables import NONE_OF_THESE, escape_cell
from dualstudent.errors import UserError
from dualstudent.teach.labels import Entry
from dualstudent.teach.session import Session

LEAST_TESTED = 20  # labeled images of the sample that make a test part


def write_table(session: Session, path: Path, tested: bool) -> None:
    """Write path, label and part of all images as a CSV file that ``train`` takes.

    Args:
        session: the labels.
        path: the file; must not exist.
        tested: whether the sample is the test part, so that the run is measured honestly; only if
            20 of its images have a label. Otherwise all labels are learned from.
    """
    with create_text_file(path) as file:
        table = csv.writer(file)
        table.writerow(["path", "label", "part"])
        for number, label, part in list_rows(session, tested):
            table.writerow([escape_cell(str(session.find_file(number))), escape_cell(label), part])


def list_rows(session: Session, tested: bool) -> Iterator[tuple[int, str, str]]:
    """Yield number, label and part of the images that can be trained on."""
    entries = session.labels.entries
    learned = Counter(e.label for e in entries if e.label and not e.in_sample and _is_used(e))
    test = {
        number
        for number, entry in enumerate(entries)
        if entry.in_sample and learned[entry.label] and _is_used(entry)
    }
    if not tested or len(test) < LEAST_TESTED:
        test = set()
    for number, entry in enumerate(entries):
        if _is_used(entry):
            yield number, entry.label, "test" if number in test else entry.part


def check_trainable(session: Session) -> None:
    """Check that there is enough to train on.

    Raises:
        UserError: if fewer than two classes have a label.
    """
    entries = session.labels.entries
    classes = {e.label for e in entries if e.label and e.part == "train" and _is_used(e)}
    if len(classes) < 2:
        raise UserError("label images of two classes at least; there is nothing to tell apart yet")


def write_class_folders(session: Session, folder: Path, how: Literal["copy", "link"]) -> int:
    """Write the labeled images into a folder per class; the files of the user stay where they are.

    Args:
        session: the labels.
        folder: must not exist.
        how: as copies, or as symbolic links.

    Returns:
        The number of images.

    Raises:
        UserError: if the folder exists, or the name of a class cannot be one of a folder.
    """
    if folder.exists():
        raise UserError(f"{folder} already exists; choose another folder")
    labeled = [(n, e) for n, e in enumerate(session.labels.entries) if e.label and _is_used(e)]
    for name in sorted({entry.label for _, entry in labeled}):
        if name in (".", "..") or "/" in name or len(os.fsencode(name)) > 255:
            raise UserError(f"the class {name!r} cannot be a folder; rename it")
    with create_folder(folder) as partial:
        taken = set[Path]()
        for number, entry in labeled:
            source = session.find_file(number)
            target = _find_free(partial / entry.label / source.name, taken)
            target.parent.mkdir(exist_ok=True)
            if how == "link":
                target.symlink_to(source)
            else:
                shutil.copy2(source, target)
    return len(labeled)


def _find_free(path: Path, taken: set[Path]) -> Path:
    """Return a path of its own for a file; others of the same name lie in other folders."""
    found, count = path, 1
    while found in taken:
        count += 1
        found = path.with_name(f"{path.stem}-{count}{path.suffix}")
    taken.add(found)
    return found


def _is_used(entry: Entry) -> bool:
    return not entry.is_gone and entry.event != NONE_OF_THESE
