"""Views made ahead of time by worker processes, handed out in order."""

import atexit
import multiprocessing
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from multiprocessing import resource_tracker
from threading import current_thread, main_thread
from typing import Any, Self
from weakref import WeakSet

import torch
from torch.utils.data import DataLoader, Dataset

from dualstudent.data.batching.readers import Chunk
from dualstudent.data.samples import Samples
from dualstudent.errors import UserError
from dualstudent.parallel import main_module_left_out
from dualstudent.signals import STOPS


class Prefetch:
    """``read(number)`` for any number, fastest for one number after the other.

    Where samples ask for workers, these run ahead of the number that was asked for last, two
    chunks each; a number out of turn makes them start anew from there. Without, every chunk is
    made when it is asked for. Either way it is the same chunk.

    Args:
        read: what to compute; the workers import it, and get what it holds by pickling.
        samples: that it reads.
        device: where to bring the views.
        end: the first number that will not be asked for; default: there is none.
        limit_broken: whether too many broken samples raise an error here; where several processes
            share a step, all must finish it before they can stop together.
    """

    def __init__(
        self,
        read: Callable[[int], Chunk],
        samples: Samples,
        device: torch.device | str,
        end: int | None = None,
        limit_broken: bool = True,
    ) -> None:
        self._read, self._samples, self._device = read, samples, device
        self._limit_broken = limit_broken
        self._numbers = _Numbers(0, end)
        self._workers = samples.workers if end is None else min(samples.workers, end)
        self._expected = -1
        self._loader: DataLoader[Chunk] | None = None
        self._results: Any = None  # torch's iterator, whose type is private

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, number: int) -> Chunk:
        """The chunk of ``number``, its views finished and on the device.

        Raises:
            UserError: if too many samples cannot be read, or a worker died.
        """
        chunk = self._fetch(number) if self._workers else self._read(number)
        tally = self._samples.tally
        if tally is not None:
            tally.add(len(chunk.indices) + len(chunk.broken), chunk.broken)
            if self._limit_broken and tally.too_many:
                tally.raise_too_many()
        if not chunk.views:
            raise UserError(f"too many images cannot be read, the last was {chunk.broken[-1]}")
        chunk = chunk.to(self._device)
        return replace(chunk, views=self._samples.finish_views(chunk.views))

    def close(self) -> None:
        """End the workers; another chunk would start new ones."""
        if self._loader is not None:
            # Left to the garbage collector, they would outlive a failure whose traceback refers
            # to them, and the program would wait for them at its end.
            self._results._shutdown_workers()
        self._results = self._loader = None
        self._expected = -1

    def _fetch(self, number: int) -> Chunk:
        in_turn, self._expected = number == self._expected, -1  # unknown, should this fail
        try:
            if not in_turn:
                self._start(number)
            chunk: Chunk = next(self._results)
        except RuntimeError as error:
            if "DataLoader worker (pid" not in str(error):
                raise
            raise UserError(
                f"one of {self._workers} worker processes died, perhaps for lack of memory or "
                "shared memory (/dev/shm); try a smaller data.workers"
            ) from error
        self._expected = number + 1
        return chunk

    def _start(self, number: int) -> None:
        self._numbers.start = number
        with warnings.catch_warnings(action="ignore"):  # of more workers than cores, as was asked
            if self._loader is not None:  # the same workers, from another number on
                self._results = iter(self._loader)
                return
            loader = self._make_loader()
            with _block_stop_signals(), main_module_left_out():
                self._results, self._loader = iter(loader), loader
        _running.add(self)

    def _make_loader(self) -> DataLoader[Chunk]:
        return DataLoader(
            _Chunks(self._read),
            batch_size=None,
            sampler=self._numbers,
            num_workers=self._workers,
            collate_fn=_return_unchanged,
            pin_memory=torch.device(self._device).type == "cuda",
            multiprocessing_context=multiprocessing.get_context("spawn"),  # threads do not fork
            generator=torch.Generator(),  # else it would draw from the global one
            persistent_workers=True,
        )


_running: WeakSet[Prefetch] = WeakSet()


@atexit.register
def _close_all() -> None:
    for prefetch in list(_running):
        prefetch.close()


@contextmanager
def _block_stop_signals() -> Iterator[None]:
    """Processes started in the block inherit that stops are held back from them.

    A signal to the whole group is the parent's to handle: it may still need its workers for a
    step. These end when they are told to, or find that the parent has gone.
    """
    on_child, in_main_thread = signal.getsignal(signal.SIGCHLD), current_thread() is main_thread()
    resource_tracker.ensure_running()  # starting it would let the signals through
    held_before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held_before)
        if in_main_thread:  # torch's handler raises in the middle of whatever is going on
            signal.signal(signal.SIGCHLD, on_child)


@dataclass
class _Numbers:
    """From ``start`` on; where that is may change between passes."""

    start: int
    end: int | None

    def __iter__(self) -> Iterator[int]:
        return iter(count(self.start) if self.end is None else range(self.start, self.end))


@dataclass
class _Chunks(Dataset[Chunk]):
    read: Callable[[int], Chunk]

    def __getitem__(self, number: int) -> Chunk:
        return self.read(number)


def _return_unchanged(chunk: Any) -> Any:
    return chunk
