"""What a step, or a chunk of the test, looks at: views of samples as a function of a number.

Worker processes load this file and what it imports, so it imports little.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dualstudent.data.batching.broken import BrokenSamples
from dualstudent.data.batching.samplers import WHOLE, Share, Stream
from dualstudent.data.samples import Samples
from dualstudent.data.transforms.policy import Draw
from dualstudent.generators import make_generator

_ATTEMPTS = 100  # to replace samples that cannot be read: enough where nine in ten cannot


@dataclass(frozen=True)
class Look:
    """Views of some samples, and what came in between.

    Attributes:
        views: (B, …) each, as :meth:`Samples.unfinished` or :meth:`Samples.views` makes them;
            none if too many of the samples could not be read.
        indices: (B,) int64, of the samples that are in the views.
        broken: names of samples that could not be read, with the reason.
    """

    views: list[Tensor]
    indices: Tensor
    broken: tuple[str, ...] = ()

    def to(self, device: torch.device | str) -> "Look":
        """On ``device``; what is there already is not copied."""
        return self._with(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> "Look":
        """In memory from which a GPU can fetch by itself; called by torch's loader."""
        return self._with(Tensor.pin_memory)

    def _with(self, change: Callable[[Tensor], Tensor]) -> "Look":
        views = [change(view) for view in self.views]
        return replace(self, views=views, indices=change(self.indices))


class StepLook:
    """Views of the samples of a step, each drawn from (seed, step, view).

    A sample that cannot be read is replaced by another one of its stream.

    Args:
        samples: the training set.
        streams: of indices in it, one after the other in every step.
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
        indices = torch.cat([self._share.of(stream.batch(step)) for stream in self._streams])
        process = [self._share.number] if self._share.number else []
        broken: list[str] = []
        for attempt in range(_ATTEMPTS):
            draws = [
                Draw(
                    "weak",
                    make_generator(self._seed, "view", step, number, *process, device=self._device),
                )
                for number in range(self._views)
            ]
            try:
                return Look(self._samples.unfinished(indices, draws), indices, tuple(broken))
            except BrokenSamples as error:
                broken += error.reasons.values()
                indices = self._replaced(error.reasons, indices, step, attempt)
        return Look([], indices, tuple(broken))

    def _replaced(self, rows: Iterable[int], indices: Tensor, step: int, attempt: int) -> Tensor:
        indices = indices.clone()
        owners = [
            stream
            for stream in self._streams
            for _ in range(stream.batch_size // self._share.count)
        ]
        for row in rows:
            indices[row] = owners[row].substitute(step, int(indices[row]), attempt)
        return indices


class ChunkLook:
    """The samples of a chunk, clean and perturbed, without those that cannot be read.

    Args:
        samples: the test set, say.
        indices: (N,) int64, of its samples to look at, in this order.
        size: of a chunk.
        seed: decides the perturbations.
        device: where the views are needed.
    """

    def __init__(
        self,
        samples: Samples,
        indices: Tensor,
        size: int,
        seed: int,
        device: torch.device | str,
    ) -> None:
        self._device = "cpu" if samples.streamed else device
        self._samples, self._indices = samples.to(self._device), indices
        self._size, self._seed = size, seed

    def __call__(self, number: int) -> Look:
        start = number * self._size
        indices = self._indices[start : start + self._size]
        try:
            return Look(self._views(indices, start), indices)
        except BrokenSamples as error:
            readable = [row for row in range(len(indices)) if row not in error.reasons]
            indices, broken = indices[readable], tuple(error.reasons.values())
            return Look(self._views(indices, start), indices, broken)

    def _views(self, indices: Tensor, start: int) -> list[Tensor]:
        draw = make_generator(self._seed, "test view", start, device=self._device)
        return self._samples.unfinished(indices, [None, Draw("weak", draw)])
