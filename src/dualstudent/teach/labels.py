"""Which image has which label, by the rows of a journal."""

from dataclasses import dataclass, field, replace

from dualstudent.data.images.tables import GONE
from dualstudent.teach.journal import Row, read_number

LISTED, LABELED, UNDONE = "listed", "labeled", "undone"
SKIPPED, NOT_SURE = "skipped", "not sure"
ADDED, RENAMED, REMOVED = "class added", "class renamed", "class removed"
SAMPLE = "sample"


@dataclass(frozen=True)
class Entry:
    """What is known about an image.

    Attributes:
        path: as the journal has it.
        label: its class; empty if it has none.
        part: ``"train"`` or ``"test"``.
        event: the last one, before it was gone.
        in_sample: whether it is one of those that measure the model.
        is_gone: whether its file is not there now.
    """

    path: str
    label: str = ""
    part: str = "train"
    event: str = LISTED
    in_sample: bool = False
    is_gone: bool = False

    @property
    def is_open(self) -> bool:
        """Whether nobody has decided about it yet."""
        is_free = not self.label and not self.is_gone
        return is_free and self.event in (LISTED, UNDONE, REMOVED)

    def change(self, label: str, event: str) -> Row:
        """Return the row that changes it; one that is gone stays so, and has it when it is back."""
        if self.is_gone:
            return Row(self.path, label, self.part, GONE, note=event)
        return Row(self.path, label, self.part, event)


@dataclass
class Labels:
    """The state that rows lead to; :meth:`apply` is all that changes it.

    Attributes:
        entries: one per image, in the order in which they were found.
        classes: their names, in the order of their keys.
    """

    entries: list[Entry] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict)
    _reverts: dict[str, list[Row]] = field(default_factory=dict)

    def find(self, path: str) -> int | None:
        """Find the number of an image by its path in the journal."""
        return self._numbers.get(path)

    def apply(self, row: Row) -> None:
        """Apply a row; a decision can be reverted from then on."""
        if not row.path and row.event == UNDONE:
            self._reverts.pop(row.action, None)
            return
        reverts = self._apply_to_image(row) if row.path else self._apply_to_classes(row)
        if row.action and reverts:
            self._reverts.setdefault(row.action, []).extend(reverts)

    @property
    def can_revert(self) -> bool:
        """Whether there is a decision that is not undone."""
        return bool(self._reverts)

    def list_reverts(self) -> tuple[str, list[Row]] | None:
        """Return the number of the last decision and the rows that revert it; None without one."""
        if not self._reverts:
            return None
        action = next(reversed(self._reverts))
        rows = self._reverts[action][::-1]
        # Classes first: a label of a name that is no class would become a new one. And none goes
        # that other images have, which may have come with it since.
        reverted = {row.path for row in rows}
        used = {entry.label for entry in self.entries if entry.path not in reverted}
        classes = [
            row for row in rows if not row.path and (row.event != REMOVED or row.label not in used)
        ]
        return action, [*classes, *(self._revert_now(row) for row in rows if row.path)]

    def _apply_to_image(self, row: Row) -> list[Row]:
        """Apply a row about an image; returns the rows that revert it."""
        added = list[Row]()
        if row.label and row.label not in self.classes:
            self.classes.append(row.label)
            added.append(Row("", row.label, event=REMOVED))
        number = self._numbers.setdefault(row.path, len(self.entries))
        if number == len(self.entries):
            in_sample = row.note == SAMPLE
            self.entries.append(Entry(row.path, row.label, row.part, row.event, in_sample))
            return []
        before, is_gone = self.entries[number], row.event == GONE
        event = (row.note or before.event) if is_gone else row.event
        self.entries[number] = replace(
            before, label=row.label, part=row.part, event=event, is_gone=is_gone
        )
        return [*added, Row(before.path, before.label, event=before.event)]

    def _revert_now(self, row: Row) -> Row:
        entry = self.entries[self._numbers[row.path]]
        return entry.change(row.label, UNDONE if row.event == LISTED else row.event)

    def _apply_to_classes(self, row: Row) -> list[Row]:
        name = row.label
        if row.event == ADDED and name not in self.classes:
            place = read_number(row.note)
            self.classes.insert(len(self.classes) if place < 0 else place, name)
            return [Row("", name, event=REMOVED)]
        if row.event == REMOVED and name in self.classes:
            return [self._take_out(name)]
        if row.event == RENAMED and row.note in self.classes:
            place = self.classes.index(row.note)
            if name in self.classes:  # both become one
                return [self._take_out(row.note)]
            self.classes[place] = name
            return [Row("", row.note, event=RENAMED, note=name)]
        return []

    def _take_out(self, name: str) -> Row:
        """Take out a class; returns the row that puts it back where it was."""
        place = self.classes.index(name)
        del self.classes[place]
        return Row("", name, event=ADDED, note=str(place))
