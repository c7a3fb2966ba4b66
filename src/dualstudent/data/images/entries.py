"""Entries of the cache of decoded images: pixels in one file, and what is known of each image."""

import hashlib
import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dualstudent.data.images.decoding import DECODER, Channels
from dualstudent.errors import UserError

_MOST_ENTRIES = 8  # a look and a training of four data sets
_SECONDS_UNTIL_DEAD = 24 * 3600.0
_PIXELS, _FACTS, _PREFIX, _UNFINISHED = "pixels", "facts.npz", "images-", "partial-"


@dataclass(frozen=True)
class Kind:
    """How images were decoded; rows of entries of one kind can be exchanged.

    Attributes:
        size: pixels a side.
        channels: 3 for color, 1 for gray.
    """

    size: int
    channels: Channels

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of one row."""
        return (self.channels, self.size, self.size)

    @property
    def name(self) -> str:
        """What the names of its entries begin with."""
        decoder = hashlib.blake2b(DECODER.encode(), digest_size=8).hexdigest()
        return f"{_PREFIX}{self.channels}x{self.size}x{self.size}-{decoder}-"


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What is known of one file without its pixels.

    Attributes:
        content: digest of its bytes; empty if it could not be opened.
        length: how many bytes they are.
        stamp: the same again only if the file is unchanged; empty where that cannot be told.
        size: height and width of the image, before resizing.
        digest: of all its pixels, before resizing.
        reason: why there are no pixels; empty if there are.
    """

    content: str
    length: int
    stamp: str
    size: tuple[int, int] = (0, 0)
    digest: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DecodedFile:
    """What became of one file: (channels, size, size) uint8, or None with a reason in its facts."""

    facts: FileFacts
    pixels: NDArray[np.uint8] | None


@dataclass(frozen=True)
class Entry:
    """The files of a listing, in its order.

    Attributes:
        folder: of the entry. It may vanish at any time; what is mapped stays.
        facts: of every file.
        pixels: (M, channels, size, size) of those that could be read, mapped.
    """

    folder: Path
    facts: list[FileFacts]
    pixels: NDArray[np.uint8]

    @classmethod
    def open(cls, folder: Path, kind: Kind) -> "Entry | None":
        """The entry; None if there is none, or not a whole one."""
        try:
            facts = _read_facts(folder / _FACTS)
            count = sum(not each.reason for each in facts)
            if (folder / _PIXELS).stat().st_size != count * math.prod(kind.shape):
                return None
            # Read only: to map more than the memory holds, systems refuse if it could be written.
            pixels = np.memmap(folder / _PIXELS, np.uint8, "r", shape=(count, *kind.shape))
        except Exception:  # damaged archives raise whatever they like
            return None
        return cls(folder, facts, pixels)

    def files(self) -> Iterator[DecodedFile]:
        """Every file, with its row of the mapped pixels."""
        rows = iter(np.asarray(self.pixels))  # without a memmap around every row
        return (DecodedFile(each, None if each.reason else next(rows)) for each in self.facts)

    def use(self, facts: list[FileFacts]) -> None:
        """Note that it was used now, and the stamps that its files have today."""
        with suppress(OSError):  # a cache that may only be read serves as well
            os.utime(self.folder)
            if [each.stamp for each in facts] != [each.stamp for each in self.facts]:
                with tempfile.TemporaryDirectory(dir=self.folder.parent, prefix=_UNFINISHED) as new:
                    _write_facts(Path(new) / _FACTS, facts)
                    (Path(new) / _FACTS).replace(self.folder / _FACTS)


def name_of(kind: Kind, facts: Iterable[FileFacts]) -> str:
    """The name of an entry: a hash of the content of every file, in order."""
    contents = json.dumps([each.content or each.reason for each in facts])
    return kind.name + hashlib.sha256(contents.encode()).hexdigest()


def entries_of(kind: Kind, cache: Path) -> list[Entry]:
    """All whole entries of a kind."""
    opened = (Entry.open(folder, kind) for folder in cache.glob(f"{kind.name}*"))
    return [entry for entry in opened if entry is not None]


def store(files: Iterable[DecodedFile], most: int, kind: Kind, cache: Path) -> Entry:
    """Write an entry; it appears when it is complete, and nothing is left if that fails.

    Args:
        files: one after the other, so that few are in memory.
        most: how many they can be.
        kind: of their pixels.
        cache: folder of all entries.
    """
    with _unfinished(cache, space=most * math.prod(kind.shape)) as partial:
        facts = []
        with (partial / _PIXELS).open("wb") as pixels:
            for file in files:
                facts.append(file.facts)
                if file.pixels is not None:
                    pixels.write(file.pixels.data)
        _write_facts(partial / _FACTS, facts)
        _publish(partial, cache / name_of(kind, facts), kind)
    entry = Entry.open(cache / name_of(kind, facts), kind)
    if entry is None:
        raise UserError(f"{cache}: images that were just decoded are gone; start again")
    return entry


def tidy(newest: Entry, others: Iterable[Entry], cache: Path) -> None:
    """Remove entries that are not needed any more.

    Those are ``others`` of the same kind whose images are all in ``newest``, from which they
    could be copied back, and all but the entries, of any kind, that were used last. Another
    process may have them mapped: on POSIX systems a file that was removed stays until nobody
    has it open or mapped any more; where that is forbidden, it is not removed.
    """
    there = {each.content for each in newest.facts} | {""}
    for other in others:
        if other.folder != newest.folder and all(each.content in there for each in other.facts):
            _remove(other.folder)
    used = {folder: _age(folder) for folder in cache.glob(f"{_PREFIX}*") if folder.is_dir()}
    for folder in sorted(used, key=used.__getitem__)[_MOST_ENTRIES:]:
        _remove(folder)


def _age(folder: Path) -> float:
    try:
        return time.time() - folder.stat().st_mtime
    except OSError:  # it was removed by another process
        return math.inf


def _remove(folder: Path) -> None:
    """At once for everybody who looks for it, by another name first."""
    with (
        suppress(OSError),  # somebody else removed it, or may write here
        tempfile.TemporaryDirectory(dir=folder.parent, prefix=_UNFINISHED) as attic,
    ):
        folder.rename(Path(attic) / folder.name)


@contextmanager
def _unfinished(cache: Path, space: int) -> Iterator[Path]:
    """A folder to fill, which vanishes unless it is given another name."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        _remove_the_dead(cache)
        free = shutil.disk_usage(cache).free
        if free < space:
            raise UserError(
                f"{cache}: {space / 1e9:.1f} GB are needed and {free / 1e9:.1f} GB free; "
                "make space, or set DUALSTUDENT_CACHE to another folder"
            )
        unfinished = tempfile.TemporaryDirectory(dir=cache, prefix=_UNFINISHED)
    except OSError as error:
        raise UserError(
            f"cannot write to {cache}: {error.strerror}; set DUALSTUDENT_CACHE to a folder of yours"
        ) from error
    with unfinished as folder:
        partial = Path(folder) / "entry"
        partial.mkdir()
        yield partial


def _publish(partial: Path, entry: Path, kind: Kind) -> None:
    for path in partial.iterdir():
        with path.open("rb+") as file:
            os.fsync(file.fileno())
    if entry.exists() and Entry.open(entry, kind) is None:
        _remove(entry)  # damaged from outside
    try:
        partial.rename(entry)
    except OSError:
        if Entry.open(entry, kind) is None:  # else another process was faster
            raise


def _remove_the_dead(cache: Path) -> None:
    """Delete what processes that were killed left behind."""
    for partial in cache.glob(f"{_UNFINISHED}*"):
        try:
            newest = max(path.stat().st_mtime for path in (partial, *partial.rglob("*")))
        except OSError:  # its process is just finishing
            continue
        if time.time() - newest > _SECONDS_UNTIL_DEAD:
            shutil.rmtree(partial, ignore_errors=True)


def _write_facts(path: Path, facts: Sequence[FileFacts]) -> None:
    np.savez(
        path,
        contents=np.array([each.content for each in facts], "S"),
        lengths=np.array([each.length for each in facts]),
        stamps=np.array([each.stamp for each in facts], "S"),
        sizes=np.array([each.size for each in facts]),
        digests=np.array([each.digest for each in facts], "S"),
        # Apart from the others: in an array, every text takes the space of the longest.
        reasons=np.array(
            json.dumps({i: each.reason for i, each in enumerate(facts) if each.reason})
        ),
    )


def _read_facts(path: Path) -> list[FileFacts]:
    # Opened here: of a damaged archive, numpy would leave the file open.
    with path.open("rb") as file, np.load(file, allow_pickle=False) as columns:
        reasons: dict[str, str] = json.loads(str(columns["reasons"]))
        rows = zip(
            columns["contents"].astype(str).tolist(),
            columns["lengths"].tolist(),
            columns["stamps"].astype(str).tolist(),
            map(tuple, columns["sizes"].tolist()),
            columns["digests"].astype(str).tolist(),
            strict=True,
        )
        return [FileFacts(*row, reasons.get(str(i), "")) for i, row in enumerate(rows)]
