"""Processes and threads: how many cores there are, and the same work on many pieces at once."""

import multiprocessing
import os
import signal
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Protocol, TypeVar

from dualstudent.errors import UserError

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
    """Like :func:`map_processes`, by threads: for work that waits for files or frees Python."""
    pool = ThreadPoolExecutor(workers)
    try:
        yield _in_order(pool, work, pieces, 2 * workers)
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def map_processes(
    work: Callable[[Piece], Result], pieces: Iterable[Piece], workers: int
) -> Iterator[Iterator[Result]]:
    """The results in the order of the pieces, for as long as the block lasts.

    No more than two pieces per worker are under way or wait to be fetched, so that a slow
    reader slows the workers instead of filling the memory.

    Args:
        work: a function of a module, which the worker processes import.
        pieces: what it is called with.
        workers: how many processes; with one, this process does the work itself.
    """
    if workers == 1:
        yield map(work, pieces)
        return
    context = multiprocessing.get_context("spawn")  # threads of torch do not survive a fork
    pool = ProcessPoolExecutor(workers, context, initializer=_begin_worker)
    try:
        yield _in_order(pool, work, pieces, 2 * workers)
    except BrokenProcessPool as error:
        raise UserError(
            f"one of {workers} worker processes died, perhaps for lack of memory; "
            "close other programs and start again"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _in_order(
    pool: Executor, work: Callable[[Piece], Result], pieces: Iterable[Piece], window: int
) -> Iterator[Result]:
    waiting: deque[Future[Result]] = deque()
    for piece in pieces:
        waiting.append(pool.submit(work, piece))
        if len(waiting) == window:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _begin_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    warnings.simplefilter("ignore")  # what matters comes back as a result
    call_when_parent_ends(lambda: os._exit(1))
