"""Reads the views of a training step, or of a chunk of the test set.

Worker processes import this file, so it imports little.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dualstudent.batch import WHOLE, Policy, Shard
from dualstudent.data.batching.samplers import Sampler
from dualstudent.data.broken import BrokenSamples
from dualstudent.data.samples import Samples
from dualstudent.data.transforms.policy import Draw
from dualstudent.generators import make_generator

_ATTEMPTS = 100  # to replace unreadable samples: enough even if nine of ten are unreadable


@dataclass(frozen=True)
class Chunk:
    """Views of some samples.

    Attributes:
        views: (B, …) each, from :meth:`Samples.make_raw_views`; empty if too many samples could
            not be read.
        indices: (B,) int64, the samples in the views.
        broken: names of the samples that could not be read, with the reason.
    """

    views: list[Tensor]
    indices: Tensor
    broken: tuple[str, ...] = ()

    def to(self, device: torch.device | str) -> "Chunk":
        """Move the tensors to ``device``."""
        return self._map_tensors(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> "Chunk":
        """Pin the memory of the tensors; called by torch's ``DataLoader``."""
        return self._map_tensors(Tensor.pin_memory)

    def _map_tensors(self, change: Callable[[Tensor], Tensor]) -> "Chunk":
        views = [change(view) for view in self.views]
        return replace(self, views=views, indices=change(self.indices))


@dataclass(frozen=True)
class Role:
    """A part of every batch whose samples have the same views.

    Attributes:
        sampler: chooses the samples of each step.
        views: the transform of each view.
    """

    sampler: Sampler
    views: tuple[Policy, ...]


class StepReader:
    """Reads the views of a step; their perturbations are a function of (seed, step, view).

    A sample that cannot be read is replaced by another one of its sampler.

    Args:
        samples: the training set.
        roles: the parts of a batch, in order. View i of the batch joins view i of all roles that
            have one.
        seed: seed of the run.
        device: device of the views.
        shard: the part of every step that this process reads.
    """

    def __init__(
        self,
        samples: Samples,
        roles: Sequence[Role],
        seed: int,
        device: torch.device | str,
        shard: Shard = WHOLE,
    ) -> None:
        self._device = "cpu" if samples.streamed else device
        self._samples = samples.to(self._device)
        self._roles, self._seed, self._shard = roles, seed, shard
        self._alike = len({role.views for role in roles}) == 1

    def __call__(self, step: int) -> Chunk:
        drawn = [self._shard.select(role.sampler.batch(step)) for role in self._roles]
        broken: list[str] = []
        for attempt in range(_ATTEMPTS):
            try:
                return Chunk(self._make_views(drawn, step), torch.cat(drawn), tuple(broken))
            except BrokenSamples as error:
                broken += error.reasons.values()
                drawn = self._replace(error.reasons, drawn, step, attempt)
        return Chunk([], torch.cat(drawn), tuple(broken))

    def _make_views(self, drawn: Sequence[Tensor], step: int) -> list[Tensor]:
        """Read all roles together if their views are the same, else one by one."""
        if self._alike:
            return self._read(torch.cat(list(drawn)), self._roles[0].views, step, ())
        joined: list[list[Tensor]] = [[] for _ in max((r.views for r in self._roles), key=len)]
        start = 0
        broken: dict[int, str] = {}
        for role, indices in zip(self._roles, drawn, strict=True):
            try:
                seen = self._read(indices, role.views, step, (role.sampler.name,))
            except BrokenSamples as error:
                broken |= {start + row: reason for row, reason in error.reasons.items()}
            else:
                for views, view in zip(joined, seen, strict=False):
                    views.append(view)
            start += len(indices)
        if broken:
            raise BrokenSamples(broken)
        return [torch.cat(views) for views in joined]

    def _read(
        self, indices: Tensor, policies: Sequence[Policy], step: int, role: tuple[str, ...]
    ) -> list[Tensor]:
        purpose = (self._seed, "view", step)
        draws = [
            Draw(policy, make_generator(*purpose, number, *role, device=self._device), self._shard)
            for number, policy in enumerate(policies)
        ]
        return self._samples.make_raw_views(indices, draws)

    def _replace(
        self, rows: Iterable[int], drawn: Sequence[Tensor], step: int, attempt: int
    ) -> list[Tensor]:
        replaced = [indices.clone() for indices in drawn]
        places = [(role, row) for role, part in enumerate(drawn) for row in range(len(part))]
        for role, row in (places[row] for row in rows):
            sampler, index = self._roles[role].sampler, int(replaced[role][row])
            replaced[role][row] = sampler.substitute(step, index, attempt)
        return replaced


class ChunkReader:
    """Reads a chunk of samples, clean and in a weak view; drops those that cannot be read.

    Args:
        samples: the samples, such as a test set.
        indices: (N,) int64, the samples to read, in this order.
        size: samples per chunk.
        seed: seed of the perturbations; None for clean samples only.
        device: device of the views.
    """

    def __init__(
        self,
        samples: Samples,
        indices: Tensor,
        size: int,
        seed: int | None,
        device: torch.device | str,
    ) -> None:
        self._device = "cpu" if samples.streamed else device
        self._samples, self._indices = samples.to(self._device), indices
        self._size, self._seed = size, seed

    def __call__(self, number: int) -> Chunk:
        start = number * self._size
        indices = self._indices[start : start + self._size]
        broken: list[str] = []
        while True:  # a file can break between two attempts
            try:
                return Chunk(self._make_views(indices, start), indices, tuple(broken))
            except BrokenSamples as error:
                readable = [row for row in range(len(indices)) if row not in error.reasons]
                indices = indices[readable]
                broken += error.reasons.values()

    def _make_views(self, indices: Tensor, start: int) -> list[Tensor]:
        draws: list[Draw | None] = [None]
        if self._seed is not None:
            generator = make_generator(self._seed, "test view", start, device=self._device)
            draws.append(Draw("weak", generator))
        return self._samples.make_raw_views(indices, draws)
