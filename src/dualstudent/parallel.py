"""Processes and threads: how many cores there are, and the same work on many pieces at once."""

import multiprocessing
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import ModuleType
from typing import Protocol, TypeVar

PROCESSES = "DUALSTUDENT_PROCESSES"  # of the environment: how many work on the same run

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def count_cores() -> int:
    """The cores that are ours: fewer than the machine's where a task set or a quota says so.

    Processes that share the batches of a run share the cores, too.

    Example:
        >>> count_cores() >= 1
        True
    """
    from joblib import cpu_count  # knows the quota of a container; here, for it takes long to load

    return max(1, int(cpu_count()) // int(os.environ.get(PROCESSES, "1")))


def call_when_parent_ends(act: Callable[[], object]) -> None:
    """Call ``act``, in a thread, once the parent has ended, also if it was killed.

    Does nothing in a process that was not started by :mod:`multiprocessing`.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        act()

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def main_module_left_out() -> Iterator[None]:
    """Processes that are started in the block do not import the program's main module.

    Python would run the script of a user once more in each of them, unless it is guarded by
    ``if __name__ == "__main__"``. Only for processes that need nothing from there.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")  # without a file
    try:
        yield
    finally:
        sys.modules["__main__"] = main


class Progress(Protocol):
    """Is told how far a piece of work is; the observer of a training is one."""

    def on_start(self, step: int, total: int) -> None:
        """Work starts at ``step`` of ``total``."""

    def on_step(self, step: int) -> None:
        """``step`` are done."""


@contextmanager
def map_threads(
    work: Callable[[Piece], Result], pieces: Iterable[Piece], workers: int
) -> Iterator[Iterator[Result]]:
    """The results in the order of the pieces, for as long as the block lasts.

    No more than two pieces per thread are under way or wait to be fetched, so that a slow reader
    slows the threads instead of filling the memory.

    Args:
        work: what waits for files, or frees Python while it computes, as decoding does.
        pieces: what it is called with.
        workers: how many threads.
    """
    pool = ThreadPoolExecutor(workers)
    try:
        yield _yield_in_order(pool, work, pieces, 2 * workers)
    finally:
        pool.shutdown(cancel_futures=True)


def _yield_in_order(
    pool: ThreadPoolExecutor, work: Callable[[Piece], Result], pieces: Iterable[Piece], window: int
) -> Iterator[Result]:
    waiting: deque[Future[Result]] = deque()
    for piece in pieces:
        waiting.append(pool.submit(work, piece))
        if len(waiting) == window:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
