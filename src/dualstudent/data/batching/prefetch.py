"""Worker processes that make views ahead of time."""

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
    """Returns ``read(number)`` for any number; fastest for consecutive numbers.

    With ``samples.workers``, worker processes read two chunks each ahead of the last number; a
    number out of order makes them start again from there. Without workers, chunks are read on
    demand. The chunks are the same.

    Args:
        read: reads a chunk; must be picklable.
        samples: the samples that ``read`` reads.
        device: device of the views.
        end: number of chunks; default: unlimited.
        limit_broken: whether to raise if too many samples are broken. Processes that share a
            step check this together after the step instead.
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
        self._results: Any = None  # torch's iterator has a private type

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, number: int) -> Chunk:
        """Return chunk ``number`` with finished views on the device.

        Raises:
            UserError: if too many samples cannot be read, or if a worker died.
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
        """Stop the workers; the next chunk would start new ones."""
        if self._loader is not None:
            # Explicitly: a traceback that refers to them would keep them alive, and the program
            # would wait for them at its end.
            self._results._shutdown_workers()
        self._results = self._loader = None
        self._expected = -1

    def _fetch(self, number: int) -> Chunk:
        in_turn, self._expected = number == self._expected, -1  # −1 in case this fails
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
        with warnings.catch_warnings(action="ignore"):  # about more workers than cores
            if self._loader is not None:  # reuse the workers
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
            multiprocessing_context=multiprocessing.get_context("spawn"),  # fork breaks threads
            generator=torch.Generator(),  # keeps it from using the global one
            persistent_workers=True,
        )


_running: WeakSet[Prefetch] = WeakSet()


@atexit.register
def _close_all() -> None:
    for prefetch in list(_running):
        prefetch.close()


@contextmanager
def _block_stop_signals() -> Iterator[None]:
    """Block stop signals in the processes that are started in this block.

    The parent handles a signal to the whole process group, and may need its workers to finish a
    step. Workers end when the parent tells them to, or when it has ended.
    """
    on_child, in_main_thread = signal.getsignal(signal.SIGCHLD), current_thread() is main_thread()
    resource_tracker.ensure_running()  # starting it later would unblock the signals
    mask_before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask_before)
        if in_main_thread:  # torch's handler would raise at any point of the program
            signal.signal(signal.SIGCHLD, on_child)


@dataclass
class _Numbers:
    """Sampler of the numbers from ``start`` to ``end``; ``start`` may change between passes."""

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
