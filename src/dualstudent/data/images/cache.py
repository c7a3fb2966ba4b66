"""Own images decoded once; their pixels stay in a file that is mapped and never read as a whole.

A folder of the cache holds the images of one place on disk, at one size:

    pixels      rows of (channels, size, size) bytes; new ones are only ever appended
    index.json  what is known of every file: in which row it is, or why it cannot be read
    lock        held by the one process that appends

The index is replaced as a whole, after its rows are on disk, and nobody looks at rows that it does
not name. So whatever stops a process, what it leaves behind is whole.
"""

import fcntl
import hashlib
import json
import math
import os
import shutil
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dualstudent.atomic import atomic_write
from dualstudent.data.images.decoding import (
    DECODER,
    Channels,
    Header,
    UnreadableImage,
    decode,
    read_header,
    read_image_file,
    resize,
)
from dualstudent.data.images.listing import Listing
from dualstudent.data.sources.files import cache_folder
from dualstudent.errors import UserError
from dualstudent.parallel import Progress, count_cores, map_threads
from dualstudent.signals import Interrupted, StopRequest

_SECONDS_KEPT = 30 * 24 * 3600.0  # since the last use
_NS_UNTIL_SETTLED = 2 * 10**9  # the coarsest clock of a usual file system
_UNREADABLE = Header(0, 0, is_gray=False)

Result = TypeVar("Result")


@dataclass(frozen=True)
class DecodedImages:
    """The readable images of a listing, in its order.

    Attributes:
        listing: of the N readable files.
        pixels: (M, channels, size, size) uint8, mapped from a file that may be larger than the
            memory; it can only be read.
        rows: (N,) where in ``pixels`` each image is.
        sizes: (N, 2) height and width of each before resizing.
        digests: (N,) of each in full size: equal exactly if the images are, pixel by pixel.
        is_gray: whether no image has any color.
        unreadable: the files that were left out, and why.
    """

    listing: Listing
    pixels: NDArray[np.uint8]
    rows: NDArray[np.int64]
    sizes: NDArray[np.int32]
    digests: NDArray[np.bytes_]
    is_gray: bool
    unreadable: tuple[UnreadableImage, ...]

    def chunks(self, length: int) -> Iterator[NDArray[np.uint8]]:
        """All images in the order of the listing, (≤ ``length``, channels, size, size) each."""
        return (self.pixels[self.rows[i : i + length]] for i in range(0, len(self.rows), length))


def decode_images(
    listing: Listing,
    size: int,
    channels: Channels = 3,
    *,
    progress: Progress | None = None,
    folder: Path | None = None,
) -> DecodedImages:
    """Every readable image of a listing at one size; decoded only if its content is new.

    A file with the number, size and times of a known one is taken for the same without being
    read. Any other file is read, and decoded unless its content is known: a file that was moved
    or copied is not decoded again.

    Args:
        listing: the files.
        size: the short side is brought to it, then the center square is taken.
        channels: 3 for color, 1 for gray.
        progress: is told how many of the new files are done.
        folder: of the cache; default: $DUALSTUDENT_CACHE, else the user's cache folder.

    Raises:
        UserError: if no image can be read, or the cache cannot be written.
        Interrupted: after Ctrl-C, SIGTERM or SIGHUP; what is decoded by then is kept.
    """
    cache = cache_folder(folder)
    store = _Store(cache, listing, size, channels)
    files = store.find(listing.paths)
    if None in files:
        try:
            files = store.add(listing.paths, progress)
            _remove_unused(cache)
        except OSError as error:
            raise UserError(
                f"cannot write to {cache}: {error.strerror}; make space there, or set "
                "DUALSTUDENT_CACHE to a folder of yours"
            ) from error
    return store.open(listing, [file for file in files if file is not None])


def measure_images(
    listing: Listing, *, progress: Progress | None = None, folder: Path | None = None
) -> tuple[int, bool]:
    """What can be said of images without decoding any: from the cache, else from their headers.

    Args:
        listing: the files.
        progress: is told how many files were looked at.
        folder: of the cache; default: $DUALSTUDENT_CACHE, else the user's cache folder.

    Returns:
        Pixels of the short side, the median over the images; and whether all are known to be gray.
    """
    known: dict[str, Header] = {}
    for store in cache_folder(folder).glob(f"{_name_place(listing)}-*"):
        for file in _read_index(store):
            is_gray = file.is_gray or (file.stamp in known and known[file.stamp].is_gray)
            known[file.stamp] = Header(*file.size, is_gray)

    def measure(path: Path) -> Header:
        try:
            return known.get(_make_stamp(path) or "new") or read_header(path)
        except UnreadableImage:
            return _UNREADABLE

    with map_threads(measure, listing.paths, count_cores()) as results, StopRequest() as stop:
        found = list(_watch(results, len(listing), progress, stop))
    headers = [header for header in found if header != _UNREADABLE]
    short_sides = [min(header.height, header.width) for header in headers] or [0]
    return int(np.median(short_sides)), all(header.is_gray for header in headers)


class _File(NamedTuple):
    """What is known of one file.

    Attributes:
        stamp: the same again only if the file is unchanged; empty where that cannot be told.
        content: digest of its bytes; empty if it could not be opened.
        row: of its pixels; −1 if there are none.
        size: height and width of the image, before resizing.
        digest: of all its pixels, before resizing.
        is_gray: whether it is known to have no color.
        reason: why there are no pixels; empty if there are.
    """

    stamp: str
    content: str
    row: int = -1
    size: tuple[int, int] = (0, 0)
    digest: str = ""
    is_gray: bool = False
    reason: str = ""


class _Store:
    """A folder of the cache: the images of one place, at one size."""

    def __init__(self, cache: Path, listing: Listing, size: int, channels: Channels) -> None:
        kind = f"{channels}x{size}x{size}-{_hash(DECODER.encode(), 8)}"
        self._folder = cache / f"{_name_place(listing)}-{kind}"
        self._pixels = self._folder / "pixels"
        self._shape: tuple[Channels, int, int] = (channels, size, size)

    def find(self, paths: Sequence[Path]) -> list[_File | None]:
        """What is known of each file, without reading it; None for those that are new."""
        known = {file.stamp: file for file in self._read_known() if file.stamp}
        return [known.get(_make_stamp(path)) for path in paths]

    def add(self, paths: Sequence[Path], progress: Progress | None) -> list[_File | None]:
        """Read and decode the files that are new; what is known of each file afterwards."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed
            found = self.find(paths)  # another process may just have added them
            new = [path for path, file in zip(paths, found, strict=True) if file is None]
            try:
                added = iter(self._append(new, progress))
            except OSError:
                with suppress(OSError):  # leave no disk full
                    os.truncate(self._pixels, self._count_bytes(self._read_known()))
                raise
            return [file or next(added) for file in found]

    def open(self, listing: Listing, files: Sequence[_File]) -> DecodedImages:
        """The images of ``files``, which are those of the listing."""
        readable = [i for i, file in enumerate(files) if not file.reason]
        unreadable = tuple(
            UnreadableImage(path, file.reason)
            for path, file in zip(listing.paths, files, strict=True)
            if file.reason
        )
        if not readable:
            raise UserError(f"none of {len(files)} files can be read as an image; {unreadable[0]}")
        with suppress(OSError):  # a cache that may only be read serves as well
            os.utime(self._folder)
        rows = np.array([files[i].row for i in readable])
        return DecodedImages(
            listing.select(readable),
            # Read only: to map more than the memory holds, systems refuse if it could be written.
            np.memmap(self._pixels, np.uint8, "r", shape=(int(rows.max()) + 1, *self._shape)),
            rows,
            np.array([files[i].size for i in readable], np.int32),
            np.array([files[i].digest for i in readable], "S"),
            self._shape[0] == 1 or all(files[i].is_gray for i in readable),
            unreadable,
        )

    def _read_known(self) -> list[_File]:
        """All files of the index; none if the store is damaged, so that it is filled anew."""
        files = _read_index(self._folder)
        try:
            is_whole = self._pixels.stat().st_size >= self._count_bytes(files)
        except OSError:
            return []
        return files if is_whole else []

    def _count_bytes(self, files: Sequence[_File]) -> int:
        return _count_rows(files) * math.prod(self._shape)

    def _append(self, paths: Sequence[Path], progress: Progress | None) -> list[_File]:
        before, added = self._read_known(), list[_File]()
        row = _count_rows(before)
        if row == 0:  # not emptied: somebody may have it mapped
            self._pixels.unlink(missing_ok=True)
        read = partial(self._read, {file.content: file for file in before})
        with (
            self._pixels.open("ab") as pixels,
            warnings.catch_warnings(action="ignore"),  # what matters is in the reason
            map_threads(read, paths, count_cores()) as results,
            StopRequest() as stop,
        ):
            pixels.truncate(self._count_bytes(before))  # what a process that was killed left behind
            try:
                for file, image in _watch(results, len(paths), progress, stop):
                    if image is None:
                        added.append(file)
                    else:
                        pixels.write(image.data)
                        added.append(file._replace(row=row))
                        row += 1
            finally:  # what is done by then is kept
                pixels.flush()
                os.fsync(pixels.fileno())
                _write_index(self._folder, [*before, *added])
        return added

    def _read(
        self, known: Mapping[str, _File], path: Path
    ) -> tuple[_File, NDArray[np.uint8] | None]:
        """What a file is and, if its content is new and can be decoded, its pixels."""
        stamp = _make_stamp(path)  # before: a change while reading makes another
        channels, size, _ = self._shape
        name = ""
        try:
            content = read_image_file(path)
            name = _hash(content, 32)
            if name in known:
                return known[name]._replace(stamp=stamp), None
            whole = decode(content, channels)
        except UnreadableImage as unreadable:
            return _File(stamp, name, reason=unreadable.reason), None
        digest = _hash(repr(whole.shape).encode() + whole.tobytes(), 16)
        gray = (whole == whole[:1]).all() if channels == 3 else read_header(content).is_gray
        _, height, width = whole.shape
        file = _File(stamp, name, -1, (height, width), digest, bool(gray))
        return file, resize(whole, size)


def _name_place(listing: Listing) -> str:
    """What the names of all stores of these files begin with."""
    folders = {path.absolute().parent for path in listing.paths}
    return f"images-{_hash(os.fsencode(os.path.commonpath(folders)), 16)}"


def _hash(content: bytes, length: int) -> str:
    return hashlib.blake2b(content, digest_size=length).hexdigest()


def _make_stamp(path: Path) -> str:
    """All that changes whenever the content of a file does.

    That includes the time of the last change, which programs cannot set, as they can that of the
    last writing. A file that changed just now has no stamp: it could change again within a tick
    of the file system's clock.
    """
    try:
        status = path.stat()
    except OSError:
        return ""
    written, changed = status.st_mtime_ns, status.st_ctime_ns
    if time.time_ns() - max(written, changed) < _NS_UNTIL_SETTLED:
        return ""
    return f"{status.st_dev} {status.st_ino} {status.st_size} {written} {changed}"


def _count_rows(files: Sequence[_File]) -> int:
    return 1 + max((file.row for file in files), default=-1)


def _read_index(folder: Path) -> list[_File]:
    try:
        return [_File(*each) for each in json.loads((folder / "index.json").read_text())]
    except (OSError, ValueError, TypeError):  # there is none, or it is damaged
        return []


def _write_index(folder: Path, files: Iterable[_File]) -> None:
    """Note what is known; a file that could not be opened is tried again the next time."""
    known = {(file.stamp, file.content): file for file in files if file.content}
    with atomic_write(folder / "index.json") as unfinished:
        unfinished.write_text(json.dumps(list(known.values())))


def _watch(
    results: Iterable[Result], total: int, progress: Progress | None, stop: StopRequest
) -> Iterator[Result]:
    """The results as they come; shows how many, and obeys a request to stop."""
    if progress is not None:
        progress.on_start(0, total)
    for done, result in enumerate(results, start=1):
        yield result
        if progress is not None:
            progress.on_step(done)
        if stop.received:
            raise Interrupted(stop.received, f"{done:,} of {total:,} files", "the same command")


def _remove_unused(cache: Path) -> None:
    """On POSIX systems, what another process has mapped stays until it ends."""
    for folder in cache.glob("images-*"):
        with suppress(OSError):  # another process was faster
            if time.time() - folder.stat().st_mtime > _SECONDS_KEPT:
                shutil.rmtree(folder)
