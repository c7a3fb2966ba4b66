"""What a step, or a chunk of the test, looks at: views of samples as a function of a number.

Worker processes load this file and what it imports, so it imports little.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dualstudent.data.broken import BrokenSamples
from dualstudent.data.samples import Samples
from dualstudent.data.streams import WHOLE, Share, Stream
from dualstudent.randomness import generator_for

_ATTEMPTS = 100  # to replace samples that cannot be read: enough where nine in ten cannot


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


class StepLook:
    """Views of the samples of a step, each drawn from (seed, step, view).

    A sample that cannot be read is replaced by another one of its stream.

    Args:
        samples: the training set.
        streams: of positions in it, one after the other in every step.
        seed: of the run.
        views: how many of each sample.
        device: where the views are needed.
        share: the part of every step that is looked at here.
    """

    def __init__(
        self,
        samples: Samples,
        streams: Sequence[Stream],
        seed: int,
        views: int,
        device: torch.device | str,
        share: Share = WHOLE,
    ) -> None:
        self._device = "cpu" if samples.streamed else device
        self._samples = samples.to(self._device)
        self._streams, self._seed, self._views = streams, seed, views
        self._share = share

    def __call__(self, step: int) -> Look:
        positions = torch.cat([self._share.of(stream.batch(step)) for stream in self._streams])
        process = [self._share.number] if self._share.number else []
        broken: list[str] = []
        for attempt in range(_ATTEMPTS):
            draws = [
                generator_for(self._seed, "view", step, number, *process, device=self._device)
                for number in range(self._views)
            ]
            try:
                return Look(self._samples.unfinished(positions, draws), positions, tuple(broken))
            except BrokenSamples as error:
                broken += error.reasons.values()
                positions = self._replaced(error.reasons, positions, step, attempt)
        return Look([], positions, tuple(broken))

    def _replaced(self, rows: Iterable[int], positions: Tensor, step: int, attempt: int) -> Tensor:
        positions = positions.clone()
        owners = [
            stream
            for stream in self._streams
            for _ in range(stream.batch_size // self._share.count)
        ]
        for row in rows:
            positions[row] = owners[row].substitute(step, int(positions[row]), attempt)
        return positions


class ChunkLook:
    """The samples of a chunk, clean and perturbed, without those that cannot be read.

    Args:
        samples: the test set, say.
        positions: (N,) int64, of its samples to look at, in this order.
        size: of a chunk.
        seed: decides the perturbations.
        device: where the views are needed.
    """

    def __init__(
        self,
        samples: Samples,
        positions: Tensor,
        size: int,
        seed: int,
        device: torch.device | str,
    ) -> None:
        self._device = "cpu" if samples.streamed else device
        self._samples, self._positions = samples.to(self._device), positions
        self._size, self._seed = size, seed

    def __call__(self, number: int) -> Look:
        start = number * self._size
        positions = self._positions[start : start + self._size]
        try:
            return Look(self._views(positions, start), positions)
        except BrokenSamples as error:
            readable = [row for row in range(len(positions)) if row not in error.reasons]
            positions, broken = positions[readable], tuple(error.reasons.values())
            return Look(self._views(positions, start), positions, broken)

    def _views(self, positions: Tensor, start: int) -> list[Tensor]:
        draw = generator_for(self._seed, "test view", start, device=self._device)
        return self._samples.unfinished(positions, [None, draw])
