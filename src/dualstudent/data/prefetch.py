"""Views made ahead of time by worker processes, handed out in order."""

import multiprocessing
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from multiprocessing import resource_tracker
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from dualstudent.data.samples import Samples
from dualstudent.errors import UserError

_HELD_BACK = {signal.SIGINT, signal.SIGTERM}


@dataclass(frozen=True)
class Look:
    """Views of some samples, and what came in between.

    Attributes:
        views: (B, …) each, as :meth:`Samples.unfinished` or :meth:`Samples.views` makes them;
            none if too many of the samples could not be read.
        positions: (B,) int64, of the samples that are in the views.
        broken: names of samples that could not be read, with the reason.
    """

    views: list[Tensor]
    positions: Tensor
    broken: tuple[str, ...] = ()

    def to(self, device: torch.device | str) -> "Look":
        """On ``device``; what is there already is not copied."""
        return self._with(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> "Look":
        """In memory from which a GPU can fetch by itself; called by torch's loader."""
        return self._with(Tensor.pin_memory)

    def _with(self, change: Callable[[Tensor], Tensor]) -> "Look":
        views = [change(view) for view in self.views]
        return replace(self, views=views, positions=change(self.positions))


class Prefetch:
    """``look(number)`` for any number, fastest for one number after the other.

    Where samples ask for workers, these run ahead of the number that was asked for last, two
    looks each; a number out of turn makes them start anew from there. Without, every look is
    made when it is asked for. Either way it is the same look.

    Args:
        look: what to compute; the workers import it, and get what it holds by pickling.
        samples: that it looks at.
        device: where to bring the views.
        end: the first number that will not be asked for; default: there is none.
    """

    def __init__(
        self,
        look: Callable[[int], Look],
        samples: Samples,
        device: torch.device | str,
        end: int | None = None,
    ) -> None:
        self._look, self._samples, self._device = look, samples, device
        self._numbers = _Numbers(0, end)
        self._workers = samples.workers if end is None else min(samples.workers, end)
        self._expected = -1
        self._loader: DataLoader[Look] | None = None
        self._results: Iterator[Look] = iter(())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def at(self, number: int) -> Look:
        """The look of ``number``, its views finished and on the device.

        Raises:
            UserError: if too many samples cannot be read, or a worker died.
        """
        look = self._arrived(number) if self._workers else self._look(number)
        if self._samples.tally is not None:
            self._samples.tally.add(len(look.positions) + len(look.broken), look.broken)
        if not look.views:
            raise UserError(f"too many images cannot be read, the last was {look.broken[-1]}")
        look = look.to(self._device)
        return replace(look, views=self._samples.finished(look.views))

    def close(self) -> None:
        """End the workers; another look would start new ones."""
        # The last references: torch ends the workers of a loader that is gone.
        self._results, self._loader = iter(()), None
        self._expected = -1

    def _arrived(self, number: int) -> Look:
        try:
            if number != self._expected:
                self._numbers.start = number
                self._results = self._started()
            look = next(self._results)
        except RuntimeError as error:
            if "DataLoader worker" not in str(error):
                raise
            raise UserError(
                f"one of {self._workers} worker processes died, perhaps for lack of memory or "
                "shared memory (/dev/shm); try a smaller data.workers"
            ) from error
        self._expected = number + 1
        return look

    def _started(self) -> Iterator[Look]:
        if self._loader is not None:
            return iter(self._loader)  # the same workers, from another number on
        self._loader = DataLoader(
            _Looks(self._look),
            batch_size=None,
            sampler=self._numbers,
            num_workers=self._workers,
            collate_fn=_as_it_is,
            pin_memory=torch.device(self._device).type == "cuda",
            multiprocessing_context=multiprocessing.get_context("spawn"),  # threads do not fork
            generator=torch.Generator(),  # else it would draw from the global one
            persistent_workers=True,
        )
        # A signal to the whole group is the parent's to handle: it may still need its workers.
        # They inherit what is held back here, and end when they are told to or the parent ends.
        resource_tracker.ensure_running()  # it would let the signals through
        held_before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)
        try:
            return iter(self._loader)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held_before)


@dataclass
class _Numbers:
    """From ``start`` on; where that is may change between passes."""

    start: int
    end: int | None

    def __iter__(self) -> Iterator[int]:
        return iter(count(self.start) if self.end is None else range(self.start, self.end))


@dataclass
class _Looks(Dataset[Look]):
    look: Callable[[int], Look]

    def __getitem__(self, number: int) -> Look:
        return self.look(number)


def _as_it_is(look: Any) -> Any:
    return look
