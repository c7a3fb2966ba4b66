"""Images decoded once: bytes of one size in a memory-mapped file, found again by content."""

import hashlib
import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualstudent.data.decoding import (
    DECODER,
    Channels,
    UnreadableImage,
    decode,
    read_image_file,
    resized,
)
from dualstudent.data.files import cache_folder
from dualstudent.data.listing import Listing
from dualstudent.data.workers import Progress, in_processes, in_threads
from dualstudent.errors import UserError
from dualstudent.interruption import Interrupted, StopRequest

_FILES_PER_PIECE = 16
_FILES_PER_PROCESS = 256  # for fewer, starting another process takes longer than it saves
_SECONDS_UNTIL_DEAD = 24 * 3600.0
_PIXELS, _FACTS, _ENTRY = "pixels", "facts.npz", "entry.json"


@dataclass(frozen=True)
class DecodedImages:
    """The readable images of a listing, in its order.

    Attributes:
        listing: of the readable files; place i here is place i in the arrays.
        pixels: (N, channels, size, size) uint8, mapped from a file; whoever writes to it changes
            a copy of that page. ``torch.from_numpy`` takes it as it is.
        sizes: (N, 2) height and width of each before resizing.
        digests: (N,) of each in full size: equal exactly if the images are, pixel by pixel.
        unreadable: the files that were left out, and why.
    """

    listing: Listing
    pixels: NDArray[np.uint8]
    sizes: NDArray[np.int32]
    digests: NDArray[np.bytes_]
    unreadable: tuple[UnreadableImage, ...]


@dataclass(frozen=True)
class _Work:
    """What to decode, and how."""

    paths: Sequence[Path]
    contents: Sequence[str]
    size: int
    channels: Channels

    def pieces(self) -> Iterator["_Work"]:
        for here in _slices(len(self.paths)):
            yield replace(self, paths=self.paths[here], contents=self.contents[here])

    def key(self) -> str:
        digest = hashlib.sha256(json.dumps([DECODER, self.size, self.channels]).encode())
        digest.update("\n".join(self.contents).encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class _Decoded:
    """What became of some files: pixels of the readable ones, a reason for each of the others."""

    pixels: list[NDArray[np.uint8]]
    sizes: list[tuple[int, ...]]
    digests: list[str]
    unreadable: dict[int, str]  # by place among those files


def decode_once(
    listing: Listing,
    size: int,
    channels: Channels = 3,
    *,
    progress: Progress | None = None,
    workers: int | None = None,
    folder: Path | None = None,
) -> DecodedImages:
    """Every readable image of a listing at one size; decoded only if its content is new.

    The first time, worker processes decode into a file; it appears under its final name when
    it is complete. After that, the files are only read to see that they are the same.

    Args:
        listing: the files.
        size: the short side is brought to it, then the centre square is taken.
        channels: 3 for colour, 1 for grey.
        progress: is told how many files were compared, then how many were decoded.
        workers: how many processes; default: by cores and number of files.
        folder: of the cache; default: $DUALSTUDENT_CACHE, else the user's cache folder.

    Raises:
        UserError: if no image can be read, or without space and rights for the cache.
        Interrupted: after Ctrl-C or SIGTERM; nothing is left behind.
    """
    folder = cache_folder(folder)
    with StopRequest() as stop:
        contents = _contents(listing.paths, _Watch(len(listing), progress, stop))
        work = _Work(listing.paths, contents, size, channels)
        entry = folder / work.key()
        if _read_entry(entry) is None:
            fitting = min(os.cpu_count() or 1, math.ceil(len(listing) / _FILES_PER_PROCESS))
            _make_entry(entry, work, workers or fitting, _Watch(len(listing), progress, stop))
    return _opened(entry, listing)


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


def _slices(count: int) -> Iterator[slice]:
    return (slice(i, i + _FILES_PER_PIECE) for i in range(0, count, _FILES_PER_PIECE))


def _contents(paths: Sequence[Path], watch: _Watch) -> list[str]:
    """A digest of each file, or why it has none."""
    contents: list[str] = []
    pieces = (paths[here] for here in _slices(len(paths)))
    with in_threads(_content_digests, pieces, os.cpu_count() or 1) as results:
        for digests in results:
            contents += digests
            watch.add(len(digests))
    return contents


def _content_digests(paths: Sequence[Path]) -> list[str]:
    return [_read(path)[1] for path in paths]


def _read(path: Path) -> tuple[bytes | UnreadableImage, str]:
    try:
        content = read_image_file(path)
    except UnreadableImage as unreadable:
        return unreadable, unreadable.reason
    return content, hashlib.blake2b(content, digest_size=32).hexdigest()


def _decode_piece(work: _Work) -> _Decoded:
    """What a worker process does."""
    decoded = _Decoded([], [], [], {})
    for place, (path, expected) in enumerate(zip(work.paths, work.contents, strict=True)):
        content, digest = _read(path)
        if digest != expected:
            raise UserError(f"{path}: changed while it was being read; start again")
        try:
            if isinstance(content, UnreadableImage):
                raise content
            pixels = decode(content, work.channels)
        except UnreadableImage as unreadable:
            decoded.unreadable[place] = unreadable.reason
            continue
        decoded.pixels.append(resized(pixels, work.size))
        decoded.sizes.append(pixels.shape[1:])
        whole = hashlib.blake2b(repr(pixels.shape).encode(), digest_size=16)
        whole.update(pixels.data)
        decoded.digests.append(whole.hexdigest())
    return decoded


def _make_entry(entry: Path, work: _Work, workers: int, watch: _Watch) -> None:
    shape = (len(work.paths), work.channels, work.size, work.size)
    with _appearing_at_once(entry, space=math.prod(shape)) as partial:
        total = _Decoded([], [], [], {})
        with (
            (partial / _PIXELS).open("wb") as file,
            in_processes(_decode_piece, work.pieces(), workers) as results,
        ):
            for decoded in results:
                first = len(total.digests) + len(total.unreadable)
                total.unreadable.update({first + i: why for i, why in decoded.unreadable.items()})
                total.sizes.extend(decoded.sizes)
                total.digests.extend(decoded.digests)
                for row in decoded.pixels:
                    file.write(row.data)
                watch.add(len(decoded.digests) + len(decoded.unreadable))
        if not total.digests:
            first_path = UnreadableImage(work.paths[0], total.unreadable[0])
            raise UserError(f"none of {shape[0]} files can be read as an image; {first_path}")
        np.savez(
            partial / _FACTS, sizes=np.array(total.sizes), digests=np.array(total.digests, "S")
        )
        facts = {"shape": [len(total.digests), *shape[1:]], "unreadable": total.unreadable}
        (partial / _ENTRY).write_text(json.dumps(facts))


@contextmanager
def _appearing_at_once(entry: Path, space: int) -> Iterator[Path]:
    """A folder to fill, which becomes ``entry`` when all went well and vanishes otherwise."""
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        _remove_the_dead(entry.parent)
        free = shutil.disk_usage(entry.parent).free
        if free < space:
            raise UserError(
                f"{entry.parent}: {space / 1e9:.1f} GB are needed and {free / 1e9:.1f} GB free; "
                "make space, or set DUALSTUDENT_CACHE to another folder"
            )
        unfinished = tempfile.TemporaryDirectory(dir=entry.parent, prefix="partial-")
    except OSError as error:
        raise UserError(
            f"cannot write to {entry.parent}: {error.strerror}; set DUALSTUDENT_CACHE to a folder "
            "of yours"
        ) from error
    with unfinished as folder:
        partial = Path(folder) / entry.name
        partial.mkdir()
        yield partial
        for path in partial.iterdir():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
        if entry.exists() and _read_entry(entry) is None:
            shutil.rmtree(entry)  # damaged from outside
        try:
            partial.rename(entry)
        except OSError:
            if _read_entry(entry) is None:  # else another process was faster
                raise


def _remove_the_dead(folder: Path) -> None:
    """Delete what processes that were killed left behind."""
    for partial in folder.glob("partial-*"):
        try:
            newest = max(path.stat().st_mtime for path in (partial, *partial.rglob("*")))
        except OSError:  # its process is just finishing
            continue
        if time.time() - newest > _SECONDS_UNTIL_DEAD:
            shutil.rmtree(partial, ignore_errors=True)


def _read_entry(entry: Path) -> dict[str, Any] | None:
    """What is in an entry; None if there is none, or not a whole one."""
    try:
        facts: dict[str, Any] = json.loads((entry / _ENTRY).read_bytes())
        is_whole = (entry / _PIXELS).stat().st_size == math.prod(facts["shape"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return facts if is_whole and (entry / _FACTS).is_file() else None


def _opened(entry: Path, listing: Listing) -> DecodedImages:
    about = _read_entry(entry)
    assert about is not None  # it was found or made a moment ago
    unreadable = {int(position): reason for position, reason in about["unreadable"].items()}
    with np.load(entry / _FACTS, allow_pickle=False) as facts:
        sizes, digests = facts["sizes"], facts["digests"]
    return DecodedImages(
        listing.select([i for i in range(len(listing)) if i not in unreadable]),
        # Copy on write: torch wants memory that can be written to, the file stays as it is.
        np.memmap(entry / _PIXELS, np.uint8, mode="c", shape=tuple(about["shape"])),
        sizes,
        digests,
        tuple(UnreadableImage(listing.paths[i], why) for i, why in unreadable.items()),
    )
