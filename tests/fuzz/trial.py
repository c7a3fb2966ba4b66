"""One input for one reader: what it may do, and what it must not."""

import os
import resource
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dualstudent import UserError
from tests.fuzz.readers import Reader

MOST_SECONDS = 10.0
MOST_BYTES = 2**31  # beside what was there before


@contextmanager
def limited_memory() -> Iterator[None]:
    """What asks for more than :data:`MOST_BYTES` fails at once, with a MemoryError."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    most = pages * resource.getpagesize() + MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def read_once(reader: Reader, content: bytes, folder: Path) -> float:
    """Read an input; return the seconds it took.

    Raises:
        AssertionError: if it took too long, or wrote a file.
        Exception: whatever the reader raised, unless it is an error for users.
    """
    begun = time.monotonic()
    with warnings.catch_warnings(action="ignore"), suppress(UserError):
        reader.read(content, folder)
    seconds = time.monotonic() - begun
    assert seconds < MOST_SECONDS, f"took {seconds:.1f} s"
    return seconds


class WatchedWrites:
    """Notes the files that this thread opens for writing outside a folder, from now on."""

    def __init__(self, folder: Path) -> None:
        self.found: list[str] = []
        self._allowed, self._thread = str(folder), threading.get_ident()
        sys.addaudithook(self._watch)

    def _watch(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or threading.get_ident() != self._thread:
            return
        path, _, flags = arguments
        writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)
        if writes and not str(path).startswith(self._allowed):
            self.found.append(str(path))
