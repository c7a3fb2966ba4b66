"""The cache of decoded images, in memory-mapped files.

A folder of the cache holds all images that were decoded at one size, wherever their files are:

    pixels      rows of (channels, size, size) bytes; new rows are appended
    index.json  for every file its row, or why it cannot be read
    lock        held by the process that appends

The index is replaced atomically after its rows have been written, and rows that it does not name
are not used. So the cache is consistent even if a process is killed.
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
from dataclasses import dataclass, replace
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
from dualstudent.data.paths import find_cache_folder
from dualstudent.errors import UserError
from dualstudent.parallel import Progress, count_cores, map_threads
from dualstudent.signals import Interrupted, StopRequest

_SECONDS_KEPT = 30 * 24 * 3600.0  # after the last use
_NS_UNTIL_SETTLED = 2 * 10**9  # the coarsest time resolution of common file systems
_UNREADABLE = Header(0, 0, is_gray=False)

Result = TypeVar("Result")


@dataclass(frozen=True)
class DecodedImages:
    """The readable images of a listing, in its order.

    Attributes:
        listing: the N readable files.
        pixels: (M, channels, size, size) uint8, read-only, mapped from a file that may be larger
            than the memory.
        rows: (N,) the row of each image in ``pixels``.
        sizes: (N, 2) height and width of each image before resizing.
        digests: (N,) hashes of the pixels before resizing, of one channel if there is no color.
        is_gray: whether no image has color.
        unreadable: the other files, with reasons.
    """

    listing: Listing
    pixels: NDArray[np.uint8]
    rows: NDArray[np.int64]
    sizes: NDArray[np.int32]
    digests: NDArray[np.bytes_]
    is_gray: bool
    unreadable: tuple[UnreadableImage, ...]

    def chunks(self, length: int) -> Iterator[NDArray[np.uint8]]:
        """Yield all images in the order of the listing, at most ``length`` at a time."""
        return (self.pixels[self.rows[i : i + length]] for i in range(0, len(self.rows), length))


def decode_images(
    listing: Listing,
    size: int,
    channels: Channels = 3,
    *,
    progress: Progress | None = None,
    folder: Path | None = None,
) -> DecodedImages:
    """Return all readable images of a listing at one size, from the cache as far as possible.

    A file with the inode, size and times of a known one is not read again. Any other file is
    read, but decoded only if its content is new, so moved or copied files are not decoded again.

    Args:
        listing: the files.
        size: size in pixels a side; the center square of each image is resized to it.
        channels: 3 for color, 1 for gray.
        progress: receives the number of new files that are done.
        folder: cache folder; default: $DUALSTUDENT_CACHE, else the user's cache folder.

    Raises:
        UserError: if no image can be read, or the cache cannot be written.
        Interrupted: after Ctrl-C, SIGTERM or SIGHUP; what has been decoded is kept.
    """
    cache = find_cache_folder(folder)
    if channels == 1 and (images := _find_gray(cache, listing, size)):
        return images
    store = _Store(cache, size, channels)
    files = store.find(listing.paths)
    if None in files:
        try:
            files = store.add(listing.paths, progress)
            remove_unused(cache, "images-*")
        except OSError as error:
            raise UserError(
                f"cannot write to {cache}: {error.strerror}; make space there, or set "
                "DUALSTUDENT_CACHE to a folder of yours"
            ) from error
    return store.open(listing, [file for file in files if file is not None])


def _find_gray(cache: Path, listing: Listing, size: int) -> DecodedImages | None:
    """Find gray images that have been decoded in color; None if some have not, or have color."""
    store = _Store(cache, size, channels=3)
    found = store.find(listing.paths)
    gray = [file for file in found if file is not None and (file.is_gray or file.reason)]
    if len(gray) < len(found):
        return None
    images = store.open(listing, gray)
    return replace(images, pixels=images.pixels[:, :1])


def measure_images(
    listing: Listing, *, progress: Progress | None = None, folder: Path | None = None
) -> tuple[int, bool]:
    """Measure images without decoding them, from the cache or from their headers.

    Args:
        listing: the files.
        progress: receives the number of files that are done.
        folder: cache folder; default: $DUALSTUDENT_CACHE, else the user's cache folder.

    Returns:
        The median length of the short side in pixels, and whether all are known to be gray.
    """
    known: dict[str, Header] = {}
    for store in find_cache_folder(folder).glob("images-*"):
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
    """An entry of the index.

    Attributes:
        stamp: changes whenever the file does; empty if unknown.
        content: hash of the bytes of the file; empty if it could not be opened.
        row: row of its pixels; −1 if there are none.
        size: height and width of the image before resizing.
        digest: hash of its pixels before resizing, of one channel if it has no color.
        is_gray: whether it is known to have no color.
        reason: why it cannot be read; empty if it can.
    """

    stamp: str
    content: str
    row: int = -1
    size: tuple[int, int] = (0, 0)
    digest: str = ""
    is_gray: bool = False
    reason: str = ""


class _Store:
    """A folder of the cache, with all images at one size."""

    def __init__(self, cache: Path, size: int, channels: Channels) -> None:
        self._folder = cache / f"images-{channels}x{size}x{size}-{_hash(DECODER.encode(), 8)}"
        self._pixels = self._folder / "pixels"
        self._shape: tuple[Channels, int, int] = (channels, size, size)

    def find(self, paths: Sequence[Path]) -> list[_File | None]:
        """Look up each file without reading it; None for new files."""
        known = {file.stamp: file for file in self._read_known() if file.stamp}
        return [known.get(_make_stamp(path)) for path in paths]

    def add(self, paths: Sequence[Path], progress: Progress | None) -> list[_File | None]:
        """Read and decode the new files; return the entries of all files."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # released when the file is closed
            os.utime(self._folder)  # in use, so that no other process removes it
            found = self.find(paths)  # again: another process may have added them
            new = [path for path, file in zip(paths, found, strict=True) if file is None]
            try:
                added = iter(self._append(new, progress))
            except OSError:
                with suppress(OSError):  # free the disk space
                    os.truncate(self._pixels, self._count_bytes(self._read_known()))
                raise
            return [file or next(added) for file in found]

    def open(self, listing: Listing, files: Sequence[_File]) -> DecodedImages:
        """Map the images of ``files``, the entries of the listing's files."""
        readable = [i for i, file in enumerate(files) if not file.reason]
        unreadable = tuple(
            UnreadableImage(path, file.reason)
            for path, file in zip(listing.paths, files, strict=True)
            if file.reason
        )
        if not readable:
            raise UserError(f"none of {len(files)} files can be read as an image; {unreadable[0]}")
        with suppress(OSError):  # a read-only cache works, too
            os.utime(self._folder)
        rows = np.array([files[i].row for i in readable])
        return DecodedImages(
            listing.select(readable),
            # Read-only, so that systems allow a mapping that is larger than the memory.
            np.memmap(self._pixels, np.uint8, "r", shape=(int(rows.max()) + 1, *self._shape)),
            rows,
            np.array([files[i].size for i in readable], np.int32),
            np.array([files[i].digest for i in readable], "S"),
            self._shape[0] == 1 or all(files[i].is_gray for i in readable),
            unreadable,
        )

    def _read_known(self) -> list[_File]:
        """Read all entries; return none if the folder is damaged, so that it is filled again."""
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
        if row == 0:  # removed, not emptied: another process may have mapped it
            (self._folder / "index.json").unlink(missing_ok=True)  # first: its rows are going
            self._pixels.unlink(missing_ok=True)
        read = partial(self._read, {file.content: file for file in before})
        with (
            self._pixels.open("ab") as pixels,
            warnings.catch_warnings(action="ignore"),  # errors are in the reason
            map_threads(read, paths, count_cores()) as results,
            StopRequest() as stop,
        ):
            pixels.truncate(self._count_bytes(before))  # rows of a process that was killed
            try:
                for file, image in _watch(results, len(paths), progress, stop):
                    if image is None:
                        added.append(file)
                    else:
                        pixels.write(image.data)
                        added.append(file._replace(row=row))
                        row += 1
            finally:  # keep what is done
                pixels.flush()
                os.fsync(pixels.fileno())
                _write_index(self._folder, [*before, *added])
        return added

    def _read(
        self, known: Mapping[str, _File], path: Path
    ) -> tuple[_File, NDArray[np.uint8] | None]:
        """Return the entry of a file and, if its content is new and readable, its pixels."""
        stamp = _make_stamp(path)  # before reading, so that a later change is noticed
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
        gray = (whole == whole[:1]).all() if channels == 3 else read_header(content).is_gray
        seen = whole[:1] if gray else whole
        digest = _hash(repr(seen.shape).encode() + seen.tobytes(), 16)
        _, height, width = whole.shape
        file = _File(stamp, name, -1, (height, width), digest, bool(gray))
        return file, resize(whole, size)


def _hash(content: bytes, length: int) -> str:
    return hashlib.blake2b(content, digest_size=length).hexdigest()


def _make_stamp(path: Path) -> str:
    """Return a text that changes whenever the file does.

    It includes the change time, which programs cannot set, unlike the modification time. A file
    that has just changed has no stamp: another change could get the same times.
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
    except (OSError, ValueError, TypeError, RecursionError):  # missing or damaged
        return []


def _write_index(folder: Path, files: Iterable[_File]) -> None:
    """Write all entries except files that could not be opened, which are tried again later."""
    known = {(file.stamp, file.content): file for file in files if file.content}
    with atomic_write(folder / "index.json") as unfinished:
        unfinished.write_text(json.dumps(list(known.values())))


def _watch(
    results: Iterable[Result], total: int, progress: Progress | None, stop: StopRequest
) -> Iterator[Result]:
    """Yield the results, report the progress, and raise if a stop was requested."""
    if progress is not None:
        progress.on_start(0, total)
    for done, result in enumerate(results, start=1):
        yield result
        if progress is not None:
            progress.on_step(done)
        if stop.received:
            raise Interrupted(stop.received, f"{done:,} of {total:,} files", "the same command")


def remove_unused(cache: Path, pattern: str) -> None:
    """Remove old folders; on POSIX, files that another process has mapped stay readable."""
    for folder in cache.glob(pattern):
        with suppress(OSError):  # another process was faster, or is filling it
            if time.time() - folder.stat().st_mtime < _SECONDS_KEPT:
                continue
            with (folder / "lock").open("ab") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
