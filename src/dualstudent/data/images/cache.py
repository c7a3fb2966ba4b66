"""Images decoded once: bytes of one size in a memory-mapped file, found again by content."""

import hashlib
import math
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dualstudent.data.images.decoding import (
    Channels,
    UnreadableImage,
    decode,
    read_image_file,
    resize,
)
from dualstudent.data.images.entries import (
    DecodedFile,
    Entry,
    FileFacts,
    Kind,
    entries_of,
    name_of,
    store,
    tidy,
)
from dualstudent.data.images.listing import Listing
from dualstudent.data.sources.files import cache_folder
from dualstudent.errors import UserError
from dualstudent.parallel import Progress, count_cores, map_processes, map_threads
from dualstudent.signals import Interrupted, StopRequest

T = TypeVar("T")

_FILES_PER_PIECE = 16
_FILES_PER_PROCESS = 256  # for fewer, starting another process takes longer than it saves
_NS_UNTIL_SETTLED = 2 * 10**9  # the coarsest clock of a usual file system


@dataclass(frozen=True)
class DecodedImages:
    """The readable images of a listing, in its order.

    Attributes:
        listing: of the readable files; place i here is place i in the arrays.
        pixels: (N, channels, size, size) uint8, mapped from a file that may be larger than the
            memory; it can only be read.
        sizes: (N, 2) height and width of each before resizing.
        digests: (N,) of each in full size: equal exactly if the images are, pixel by pixel.
        unreadable: the files that were left out, and why.
    """

    listing: Listing
    pixels: NDArray[np.uint8]
    sizes: NDArray[np.int32]
    digests: NDArray[np.bytes_]
    unreadable: tuple[UnreadableImage, ...]


def decode_images(
    listing: Listing,
    size: int,
    channels: Channels = 3,
    *,
    progress: Progress | None = None,
    workers: int | None = None,
    folder: Path | None = None,
) -> DecodedImages:
    """Every readable image of a listing at one size; decoded only if its content is new.

    Worker processes read and decode what no entry of the cache holds; the rest is copied from
    there, into an entry of this listing. A file whose name, number, size and times are those of
    a file that an entry was made from is taken for the same without being read: its content
    cannot change without the time that the system keeps of it, unless somebody sets back the
    clock. All others are read: once, or twice if their length is that of a file that is known.

    Args:
        listing: the files.
        size: the short side is brought to it, then the center square is taken.
        channels: 3 for color, 1 for gray.
        progress: is told how many files were compared, then how many are in the new entry.
        workers: how many processes; default: by cores and number of files.
        folder: of the cache; default: $DUALSTUDENT_CACHE, else the user's cache folder.

    Raises:
        UserError: if no image can be read, or without space and rights for the cache.
        Interrupted: after Ctrl-C, SIGTERM or SIGHUP; nothing is left behind.
    """
    kind, cache, paths = Kind(size, channels), cache_folder(folder), listing.paths
    with StopRequest() as stop:
        entries = entries_of(kind, cache)
        found = _compared(paths, _Known(entries), _Watch(len(paths), progress, stop))
        entry = _holding(found, entries, kind)
        if entry is None:
            watch = _Watch(len(paths), progress, stop)
            with closing(_assembled(paths, found, kind, workers, watch)) as files:
                entry = store(files, len(paths), kind, cache)
            tidy(entry, entries, cache)
    return _images(entry, listing)


class _Watch:
    """Shows how many files are done, and obeys a request to stop."""

    def __init__(self, total: int, progress: Progress | None, stop: StopRequest) -> None:
        self._done, self._total = 0, total
        self._progress, self._stop = progress, stop
        if progress is not None:
            progress.on_start(0, total)

    def add(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            self._progress.on_step(self._done)
        if self._stop.received:
            done = f"{self._done:,} of {self._total:,} files"
            raise Interrupted(self._stop.received, done, "the same command")


class _Known:
    """The files that some entries hold, by what tells them."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        files = [file for entry in entries for file in entry.files()]
        self._by_stamp = {file.facts.stamp: file for file in files if file.facts.stamp}
        self._by_content = {file.facts.content: file for file in files if file.facts.content}
        self._lengths = {file.facts.length for file in files}

    def find(self, paths: Sequence[Path]) -> list[DecodedFile | None]:
        """Each file as it is known, None for those that are new."""
        return [self._find(path) for path in paths]

    def _find(self, path: Path) -> DecodedFile | None:
        length, stamp = _length_and_stamp(path)
        if stamp in self._by_stamp:
            return self._by_stamp[stamp]
        if length not in self._lengths:
            return None  # a new file is read when it is decoded, and only then
        content, facts = _read(path)
        if content is None:
            return DecodedFile(facts, None)
        file = self._by_content.get(facts.content)
        return file and replace(file, facts=replace(file.facts, stamp=facts.stamp))


def _compared(paths: Sequence[Path], known: _Known, watch: _Watch) -> list[DecodedFile | None]:
    compared: list[DecodedFile | None] = []
    with map_threads(known.find, _pieces(paths), count_cores()) as results:
        for found in results:
            compared += found
            watch.add(len(found))
    return compared


def _holding(
    found: Sequence[DecodedFile | None], entries: Iterable[Entry], kind: Kind
) -> Entry | None:
    """The entry of exactly these files in this order, if there is one."""
    facts = [file.facts for file in found if file is not None]
    if len(facts) < len(found):
        return None
    name = name_of(kind, facts)
    for entry in entries:
        if entry.folder.name == name:
            entry.use(facts)
            return entry
    return None


def _assembled(
    paths: Sequence[Path],
    found: Sequence[DecodedFile | None],
    kind: Kind,
    workers: int | None,
    watch: _Watch,
) -> Generator[DecodedFile, None, None]:
    """Every file in order: what is known as it was found, what is new fresh from a worker."""
    new = [path for path, file in zip(paths, found, strict=True) if file is None]
    fitting = min(count_cores(), math.ceil(len(new) / _FILES_PER_PROCESS))
    work = ((piece, kind) for piece in _pieces(new))
    reasons = []
    with map_processes(_decode_piece, work, workers or max(fitting, 1)) as results:
        fresh = (file for files in results for file in files)
        for piece in _pieces(found):
            for file in piece:
                decoded = file or next(fresh)
                reasons.append(decoded.facts.reason)
                yield decoded
            watch.add(len(piece))
    if all(reasons):
        first = UnreadableImage(paths[0], reasons[0])
        raise UserError(f"none of {len(paths)} files can be read as an image; {first}")


def _decode_piece(work: tuple[Sequence[Path], Kind]) -> list[DecodedFile]:
    """What a worker process does."""
    paths, kind = work
    return [_decoded(path, kind) for path in paths]


def _decoded(path: Path, kind: Kind) -> DecodedFile:
    content, facts = _read(path)
    if content is None:
        return DecodedFile(facts, None)
    try:
        pixels = decode(content, kind.channels)
    except UnreadableImage as unreadable:
        return DecodedFile(replace(facts, reason=unreadable.reason), None)
    whole = hashlib.blake2b(repr(pixels.shape).encode(), digest_size=16)
    whole.update(pixels.data)
    _, height, width = pixels.shape
    return DecodedFile(
        replace(facts, size=(height, width), digest=whole.hexdigest()), resize(pixels, kind.size)
    )


def _read(path: Path) -> tuple[bytes | None, FileFacts]:
    """The content of a file, and what can be said of it without decoding."""
    length, stamp = _length_and_stamp(path)  # before: a change while reading makes another
    try:
        content = read_image_file(path)
    except UnreadableImage as unreadable:
        return None, FileFacts("", length, "", reason=unreadable.reason)
    digest = hashlib.blake2b(content, digest_size=32).hexdigest()
    return content, FileFacts(digest, len(content), stamp)


def _length_and_stamp(path: Path) -> tuple[int, str]:
    """The size of a file, and a hash of all that changes whenever its content does.

    That is the time of the last change, which programs cannot set, as they can that of the last
    writing. A file that changed just now has no stamp: it could change again within a tick of
    the file system's clock.
    """
    try:
        status = path.stat()
    except OSError:
        return -1, ""
    if time.time_ns() - max(status.st_ctime_ns, status.st_mtime_ns) < _NS_UNTIL_SETTLED:
        return status.st_size, ""
    numbers = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    told = repr((str(path.absolute()), numbers))
    return status.st_size, hashlib.blake2b(told.encode(), digest_size=16).hexdigest()


def _pieces(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[i : i + _FILES_PER_PIECE] for i in range(0, len(items), _FILES_PER_PIECE))


def _images(entry: Entry, listing: Listing) -> DecodedImages:
    readable = [i for i, facts in enumerate(entry.facts) if not facts.reason]
    return DecodedImages(
        listing.select(readable),
        entry.pixels,
        np.array([entry.facts[i].size for i in readable], np.int32),
        np.array([entry.facts[i].digest for i in readable], "S"),
        tuple(
            UnreadableImage(path, facts.reason)
            for path, facts in zip(listing.paths, entry.facts, strict=True)
            if facts.reason
        ),
    )
