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
_OF_TWO_PATHS = {"os.rename", "os.link", "os.symlink"}
_DEEDS = _OF_TWO_PATHS | {
    *("open", "os.mkdir", "os.remove", "os.chmod", "os.chown"),
    *("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect"),
}


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
    """Read an input; return the seconds that it took of a processor, whatever else runs.

    Raises:
        AssertionError: if it took too long, or wrote a file.
        Exception: whatever the reader raised, unless it is an error for users.
    """
    begun = time.process_time()
    with warnings.catch_warnings(action="ignore"), suppress(UserError):
        reader.read(content, folder)
    seconds = time.process_time() - begun
    assert seconds < MOST_SECONDS, f"took {seconds:.1f} s"
    return seconds


class WatchedDeeds:
    """Notes what this thread changes outside a folder, starts or connects to, from now on."""

    def __init__(self, folder: Path) -> None:
        self.found: list[str] = []
        self._allowed, self._thread = str(folder), threading.get_ident()
        sys.addaudithook(self._watch)

    def _watch(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _DEEDS or threading.get_ident() != self._thread:
            return
        if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR):
            return
        if event == "os.remove" and arguments[1] != -1:
            return  # within a folder that is removed as a whole
        paths = arguments[:2] if event in _OF_TWO_PATHS else arguments[:1]
        if not all(str(path).startswith(self._allowed) for path in paths):
            self.found.append(f"{event} {paths}")
