"""Features on disk, in memory-mapped files."""

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

KEY = 16  # bytes that tell images apart

Append = Callable[[Sequence[bytes], NDArray[np.float16]], None]


class FeatureStore:
    """The features of one view of any number of images, in a folder of the cache.

        keys      16 bytes per image, the hash of its pixels
        features  one row of half precision per image, in the order of the keys
        lock      held by the process that appends

    Features are written before their keys. So what a killed process has left behind has no key,
    and is overwritten.

    Args:
        folder: the folder; need not exist.
        features: length of a row.
    """

    def __init__(self, folder: Path, features: int) -> None:
        self._folder, self._features = folder, features
        self._keys, self._rows = folder / "keys", folder / "features"

    def find(self, keys: Sequence[bytes]) -> NDArray[np.int64]:
        """Find the row of each image, −1 if it has none; (N,)."""
        known = {key: row for row, key in enumerate(self._read_keys())}
        return np.array([known.get(key, -1) for key in keys], np.int64)

    def open(self) -> NDArray[np.float16]:
        """Map all rows, (M, features), read-only."""
        count = len(self._read_keys())
        if count == 0:
            return np.empty((0, self._features), np.float16)
        with suppress(OSError):  # a read-only cache works, too
            os.utime(self._folder)
        return np.memmap(self._rows, np.float16, "r", shape=(count, self._features))

    @contextmanager
    def lock(self) -> Iterator[Append]:
        """Yield a function that appends rows; other processes wait until the block ends."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # released when the file is closed
            os.utime(self._folder)  # in use, so that no other process removes it
            count = len(self._read_keys())
            with self._keys.open("ab") as keys, self._rows.open("ab") as rows:
                keys.truncate(KEY * count)
                rows.truncate(2 * self._features * count)

                def append(names: Sequence[bytes], vectors: NDArray[np.float16]) -> None:
                    rows.write(np.ascontiguousarray(vectors).data)
                    rows.flush()
                    os.fsync(rows.fileno())
                    keys.write(b"".join(names))
                    keys.flush()

                yield append

    def _read_keys(self) -> list[bytes]:
        """Read the keys of all complete rows."""
        try:
            content, size = self._keys.read_bytes(), self._rows.stat().st_size
        except OSError:
            return []
        count = min(len(content) // KEY, size // (2 * self._features))
        return [content[KEY * row : KEY * (row + 1)] for row in range(count)]
