"""A session: the labels of a collection, and every way to change them."""

import fcntl
import getpass
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import torch

from dualstudent.data.images.listing import UNKNOWN, is_text
from dualstudent.data.images.tables import GONE, NONE_OF_THESE
from dualstudent.errors import UserError, escape_line
from dualstudent.generators import make_generator
from dualstudent.teach.images import Collection, Image
from dualstudent.teach.journal import Journal, Row, read_number
from dualstudent.teach.labels import (
    ADDED,
    LABELED,
    LISTED,
    NOT_SURE,
    REMOVED,
    RENAMED,
    SAMPLE,
    SKIPPED,
    UNDONE,
    Entry,
    Labels,
)

SET_ASIDE = (SKIPPED, NOT_SURE, NONE_OF_THESE)
_SAMPLED, _SHARE = 400, 4  # the sample has at most so many images, and every fourth
_FEWEST = 20  # images of the sample, as less says little; of a small folder, half
_LONGEST_NAME = 200


class Session:
    """The labels of a collection; safe to use from several threads.

    Args:
        collection: the images.
        folder: of the session; is made if it does not exist.
        who: written beside every decision; default: the name of the user.
        seed: draws the sample that measures the model.

    Attributes:
        labels: what the journal says.
        version: grows with every change.

    Raises:
        UserError: if the folder is in use, or holds something else.
    """

    def __init__(
        self, collection: Collection, folder: Path, who: str | None = None, seed: int = 0
    ) -> None:
        self.collection, self.folder = collection, folder.absolute()
        self._who, self._seed = who or _find_user(), seed
        if self.folder == collection.source:
            raise UserError(f"{folder}: holds the images; choose another --out")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._change = threading.RLock()
        self.labels, self.version, self._action = Labels(), 0, 0
        with ExitStack() as opened:  # nothing stays open if this fails
            opened.callback(os.close, _lock(self.folder))
            self.journal = Journal(self.folder / "labels.csv")
            opened.callback(self.journal.close)
            for row in self.journal.read():
                self.labels.apply(row)
                self._action = max(self._action, read_number(row.action))
            self._update_listing()
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Close the journal; another process may open it then."""
        self._opened.close()

    def find_file(self, number: int) -> Path:
        """Return the absolute path of an image."""
        return Path(os.path.normpath(self.folder / self.labels.entries[number].path))

    def name_path(self, path: Path) -> str:
        """Name a file as the journal does: relative, if both lie in one folder."""
        beside = self.folder.parent == self.collection.source.parent
        return os.path.relpath(path, self.folder) if beside else str(path)

    def set_label(self, numbers: Sequence[int], label: str) -> None:
        """Give images a label; a new one becomes a class.

        Raises:
            UserError: if a number or the name is wrong.
            OSError: if it cannot be written; nothing has changed then.
        """
        name = check_name(label)
        self._decide(lambda: [self._change_row(each, name, LABELED) for each in numbers])

    def set_aside(self, numbers: Sequence[int], event: str) -> None:
        """Note that images are skipped, not sure, or none of the classes; they lose their label."""
        if event not in SET_ASIDE:
            raise UserError(f"{event!r}: use {', '.join(SET_ASIDE)}")
        self._decide(lambda: [self._change_row(each, "", event) for each in numbers])

    def set_many(self, answers: Sequence[tuple[int, str, str]]) -> None:
        """Import (number, label, event) of many images as one decision."""
        rows = [
            (number, check_name(name) if name else "", event) for number, name, event in answers
        ]
        self._decide(lambda: [self._change_row(*row) for row in rows])

    def undo(self) -> list[int] | None:
        """Revert the last decision; returns the numbers of its images, None without a decision."""
        with self._change:
            found = self.labels.list_reverts()
            if found is None:
                return None
            action, reverts = found
            self._write([Row("", event=UNDONE, action=action), *reverts])
            numbers = [self.labels.find(row.path) for row in reverts if row.path]
            return [number for number in numbers if number is not None]

    def add_class(self, name: str) -> None:
        """Add a class without labels.

        Raises:
            UserError: if there is one of that name, or it cannot be a name.
        """
        new = check_name(name)
        if new in self.labels.classes:
            raise UserError(f"there is a class {new!r} already")
        self._decide(lambda: [Row("", new, event=ADDED)])

    def rename_class(self, old: str, new: str) -> None:
        """Rename a class with all its labels; if the new name is one, both become one."""
        name = check_name(new)
        self._check_class(old)
        self._decide(
            lambda: [
                Row("", name, event=RENAMED, note=old),
                *(entry.change(name, LABELED) for entry in self._find_labeled(old)),
            ]
        )

    def remove_class(self, name: str) -> None:
        """Remove a class; its images have no label then."""
        self._check_class(name)
        self._decide(
            lambda: [
                *(entry.change("", REMOVED) for entry in self._find_labeled(name)),
                Row("", name, event=REMOVED),
            ]
        )

    def _find_labeled(self, name: str) -> list[Entry]:
        return [entry for entry in self.labels.entries if entry.label == name]

    def _check_class(self, name: str) -> None:
        if name not in self.labels.classes:
            raise UserError(f"there is no class {name!r}; reload the page")

    def _change_row(self, number: int, label: str, event: str) -> Row:
        if not 0 <= number < len(self.labels.entries):
            raise UserError(f"there is no image {number}; reload the page")
        entry = self.labels.entries[number]
        if entry.is_gone:
            raise UserError(f"{entry.path}: is not there any more")
        return entry.change(label, event)

    def _decide(self, make_rows: Callable[[], list[Row]]) -> None:
        with self._change:
            rows = make_rows()
            self._write([replace(row, action=str(self._action + 1)) for row in rows])
            self._action += 1

    def _write(self, rows: Iterable[Row]) -> None:
        """Write rows with name and time, and only then apply them."""
        when = datetime.now(UTC).isoformat(timespec="milliseconds")
        signed = [replace(row, who=self._who, when=when) for row in rows]
        with self._change:
            self.journal.append(signed)
            for row in signed:
                self.labels.apply(row)
            self.version += 1

    def _update_listing(self) -> None:
        """Note which images are new, gone, or back, and draw the sample among the new ones."""
        images = {
            self.name_path(image.path): image
            for image in self.collection.images
            if not self._is_own(image.path)
        }
        known, rows = self.labels.entries, list[Row]()
        for entry in known:
            if entry.path not in images and not entry.is_gone:
                rows.append(Row(entry.path, entry.label, entry.part, GONE, note=entry.event))
            elif entry.path in images and entry.is_gone:
                rows.append(Row(entry.path, entry.label, entry.part, entry.event))
        new = {path: image for path, image in images.items() if self.labels.find(path) is None}
        sample = self._draw_sample(new, sum(entry.in_sample for entry in known))
        rows += [
            Row(path, image.label, image.part, LISTED, note=SAMPLE if path in sample else "")
            for path, image in new.items()
        ]
        if rows:
            self._write(rows)

    def _is_own(self, path: Path) -> bool:
        """Whether a file is one of the session, such as a copy in the folder of a class."""
        is_below = self.folder.is_relative_to(self.collection.source)
        return is_below and path.is_relative_to(self.folder)

    def _draw_sample(self, new: dict[str, Image], drawn: int) -> set[str]:
        open_ = [path for path, image in new.items() if not image.label and image.part == "train"]
        many = max(1, len(open_))
        share = min(_SAMPLED / many, max(1 / _SHARE, min(_FEWEST / many, 1 / 2)))
        if drawn:  # the same share of those that came later
            others = sum(1 for entry in self.labels.entries if entry.part == "train")
            share = drawn / max(drawn, others)
        generator = make_generator(self._seed, "sample", len(self.labels.entries))
        order = torch.randperm(len(open_), generator=generator)
        count = share * len(open_)
        # By chance up or down: otherwise none of those that come one at a time would be drawn.
        is_up = torch.rand((), generator=generator).item() < count % 1
        return {open_[place] for place in order[: int(count) + is_up].tolist()}


def check_name(name: str) -> str:
    """Check the name of a class; returns it without spaces around it.

    Raises:
        UserError: if a table could not hold it.
    """
    name = name.strip()
    if not name or name.casefold() in UNKNOWN:
        raise UserError(f"{name!r} cannot be the name of a class; choose another")
    if len(name) > _LONGEST_NAME or not is_text(name) or "\0" in name:
        raise UserError(f"the name of a class is text of at most {_LONGEST_NAME} characters")
    return name


def _find_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # in a container the user may have no name
        return "somebody"


def _lock(folder: Path) -> int:
    opened = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(opened)
        raise UserError(
            f"{escape_line(folder)}: is open in another 'dualstudent teach'; use its page, or end "
            "it first"
        ) from error
    return opened
