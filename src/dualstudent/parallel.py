"""Cores, child processes and threads."""

import multiprocessing
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import ModuleType
from typing import Protocol, TypeVar

from dualstudent.processes import find_world

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def count_cores() -> int:
    """Count the cores that this process may use.

    CPU affinity and container quotas are respected. Processes that share a run share the cores.

    Example:
        >>> count_cores() >= 1
        True
    """
    from joblib import cpu_count  # knows container quotas; imported here because it loads slowly

    world = find_world()
    return max(1, int(cpu_count()) // (world.local_size if world else 1))


def call_when_parent_ends(act: Callable[[], object]) -> None:
    """Call ``act`` from a thread as soon as the parent process has ended, even if it was killed.

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
    """Receives the progress of some work; training callbacks are one kind."""

    def on_start(self, step: int, total: int) -> None:
        """Called when the work starts, with ``step`` of ``total`` already done."""

    def on_step(self, step: int) -> None:
        """Called when ``step`` steps are done."""


@contextmanager
def map_threads(
    work: Callable[[Piece], Result], pieces: Iterable[Piece], workers: int
) -> Iterator[Iterator[Result]]:
    """Apply ``work`` to all pieces in threads; yields an iterator over the results, in order.

    At most two results per thread are computed ahead, so that a slow consumer slows the threads
    down instead of filling the memory. The threads end with the block.

    Args:
        work: function of one piece. Should release the GIL, as decoding and file access do.
        pieces: its arguments, one per call.
        workers: number of threads.
    """
    pool = ThreadPoolExecutor(workers)
    try:
        yield _yield_in_order(pool, work, pieces, 2 * workers)
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Threads that are started in the block compute with torch on one core each."""
    import torch  # imported here because it loads slowly

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


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
