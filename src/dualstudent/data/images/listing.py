"""Listings: image files with their labels and parts."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from dualstudent.data.datasets import Part
from dualstudent.errors import UserError, raise_problems

_NAMED = 5  # of the classes that a target lacks
UNKNOWN = ("-1", "nan")  # what programs write where there is no label


@dataclass(frozen=True)
class Listing:
    """Image files with their labels and parts, suitable for training.

    Attributes:
        name: folder or table, for messages.
        paths: paths of the N files.
        labels: label of each file in [0, C), −1 where unlabeled.
        parts: ``"train"`` or ``"test"`` for each file.
        classes: the names of the C classes.
        ignored: files without the ending of an image.
        targets: whether each file is of the target domain; empty if there is only one domain.
        unused_labels: number of files of the target in class folders that count as unlabeled.

    Raises:
        UserError: if one cannot train with these files; says what to change.
    """

    name: str
    paths: tuple[Path, ...]
    labels: tuple[int, ...]
    parts: tuple[Part, ...]
    classes: tuple[str, ...]
    ignored: tuple[Path, ...] = ()
    targets: tuple[bool, ...] = ()
    unused_labels: int = 0

    def __post_init__(self) -> None:
        if not len(self.paths) == len(self.labels) == len(self.parts):
            raise UserError(
                f"{self.name}: {len(self.paths)} files, {len(self.labels)} labels and "
                f"{len(self.parts)} parts; give one of each per image"
            )
        if not self.paths:
            raise UserError(
                f"{self.name}: holds no images; a folder needs a folder of images per class, a "
                "table a row per image"
            )
        raise_problems(self._find_wrong_names(), self.name)
        raise_problems(self._find_wrong_values(), self.name)
        known = {self.labels[i] for i in self.labeled}
        if not known:
            raise UserError(
                f"{self.name}: no training image has a label; label a few of each class"
            )
        if len(known) == 1:
            raise UserError(
                f"{self.name}: all labels are {self.classes[known.pop()]!r}; "
                "a classifier needs two classes at least"
            )
        raise_problems(self._find_wrong_domains(), self.name)
        unseen = sorted({self.labels[i] for i in self.test} - known)
        if unseen:
            names = ", ".join(repr(self.classes[label]) for label in unseen)
            raise UserError(
                f"{self.name}: the test has images of {names}, of which there is none in training; "
                "label some, or take them out of the test"
            )

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def adapts(self) -> bool:
        """Whether there is a target domain to adapt to."""
        return bool(self.targets)

    @property
    def labeled(self) -> list[int]:
        """Indices of the labeled training images."""
        return self._find(lambda label, part: part == "train" and label >= 0)

    @property
    def labeled_source(self) -> list[int]:
        """Indices of the labeled training images of the source; of a single domain, all."""
        return [i for i in self.labeled if not (self.adapts and self.targets[i])]

    @property
    def unlabeled(self) -> list[int]:
        """Indices of the unlabeled training images."""
        return self._find(lambda label, part: part == "train" and label < 0)

    @property
    def test(self) -> list[int]:
        """Indices of the test images."""
        return self._find(lambda label, part: part == "test")

    def pick_evenly(self, labeled: Sequence[int], count: int) -> list[int]:
        """Pick some labeled images, as many of each class as there are.

        Args:
            labeled: indices of the labeled images to pick from.
            count: how many to pick, at most all.

        Returns:
            Their indices, sorted.
        """
        seen, turns = Counter[int](), list[tuple[int, int]]()
        for index in labeled:
            turns.append((seen[self.labels[index]], index))
            seen[self.labels[index]] += 1
        return sorted(index for _, index in sorted(turns)[:count])

    def select(self, indices: Sequence[int]) -> "Listing":
        """Keep the files at ``indices``, in that order."""
        return replace(
            self,
            paths=tuple(self.paths[i] for i in indices),
            labels=tuple(self.labels[i] for i in indices),
            parts=tuple(self.parts[i] for i in indices),
            targets=tuple(self.targets[i] for i in indices if self.adapts),
        )

    def _find(self, wanted: Callable[[int, Part], bool]) -> list[int]:
        pairs = zip(self.labels, self.parts, strict=True)
        return [i for i, (label, part) in enumerate(pairs) if wanted(label, part)]

    def _find_wrong_names(self) -> Iterator[str]:
        """A table must hold each class, such as the one that ``label`` writes."""
        for name in self.classes:
            if name != name.strip() or name.casefold() in UNKNOWN:
                yield (
                    f"the class {name!r} could not be read from a table: spaces around a label are "
                    f"dropped, and {' and '.join(UNKNOWN)} mean unlabeled; rename it"
                )
            elif not is_text(name):
                yield f"the name of the class {name!r} is not UTF-8; rename it"

    def _find_wrong_domains(self) -> Iterator[str]:
        """Find what a domain lacks: images to learn from, or classes that the other one has."""
        if not self.adapts:
            return
        if not any(self.targets[i] for i in [*self.labeled, *self.unlabeled]):
            yield "the target has no training images; there is nothing to adapt to"
        by_domain = [
            {self.labels[i] for i in self.labeled if self.targets[i] == of_target}
            for of_target in (False, True)
        ]
        if not by_domain[0]:
            yield "no image of the source has a label; label some, or use one domain"
        elif lacking := sorted(by_domain[1] - by_domain[0]):
            names = ", ".join(repr(self.classes[label]) for label in lacking)
            yield f"the target has labels of {names}, the source has none; label some there, too"

    def _find_wrong_values(self) -> Iterator[str]:
        for path, label, part in zip(self.paths, self.labels, self.parts, strict=True):
            if part not in get_args(Part):
                yield f"{path} is in part {part!r}; use 'train' or 'test'"
            elif not -1 <= label < len(self.classes):
                yield (
                    f"{path} has label {label}; there are {len(self.classes)} classes, and −1 for "
                    "unlabeled"
                )
            elif part == "test" and label < 0:
                yield (
                    f"the test image {path} has no label; label it, or move it to the unlabeled "
                    "images"
                )


def name_lost_classes(of_target: Collection[int], classes: Sequence[str]) -> str | None:
    """Say which classes a target lacks although all of it is labeled; None if there are none.

    Args:
        of_target: the labels of the target that occur, −1 for unlabeled.
        classes: the names of the C classes, which the source has.

    Example:
        >>> name_lost_classes({0, -1}, ["cat", "dog"])
        >>> name_lost_classes({0}, ["cat", "dog"])[:43]
        "all of the target is labeled, none as 'dog'"
    """
    lost = [repr(name) for label, name in enumerate(classes) if label not in of_target]
    if -1 in of_target or not lost:
        return None
    named = ", ".join(lost[:_NAMED] + ["…"] * (len(lost) > _NAMED))
    return (
        f"all of the target is labeled, none as {named}: methods that ask for equally "
        "frequent classes, such as shot, would predict what is not there; take these classes out "
        "of the source, or set the weight of that term to 0"
    )


def is_text(name: str) -> bool:
    r"""Return whether a name is text, as opposed to bytes that are not UTF-8.

    Example:
        >>> is_text("Åse"), is_text(b"\xff".decode(errors="surrogateescape"))
        (True, False)
    """
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def sort_naturally(names: Iterable[str]) -> list[str]:
    """Sort names in natural order: numbers by value, letters regardless of case.

    Example:
        >>> sort_naturally(["img10", "img9", "Img1"])
        ['Img1', 'img9', 'img10']
    """
    return sorted(names, key=_make_natural_key)


def _make_natural_key(name: str) -> tuple[list[tuple[bool, int, str]], str]:
    pieces = filter(None, re.split(r"([0-9]+)", name.casefold()))
    # The name itself breaks ties such as "a1" and "a01", "A" and "a".
    return [_make_piece_key(piece) for piece in pieces], name


def _make_piece_key(piece: str) -> tuple[bool, int, str]:
    if piece[0] in "0123456789":
        digits = piece.lstrip("0")
        return False, len(digits), digits  # a longer number is larger
    return True, 0, piece
