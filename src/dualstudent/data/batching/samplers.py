"""Samplers that choose the samples of each step."""

from functools import lru_cache

import torch
from torch import Tensor

from dualstudent.generators import make_generator


class Sampler:
    """Yields batches of ``indices`` without end, shuffled anew for every pass.

    The batch of a step is a function of (seed, name, step), so sampling can resume at any step.

    Args:
        indices: (N,) int64, what to sample from.
        batch_size: indices per step.
        seed: seed of the run.
        name: distinguishes the samplers of a run.
        whole_batches: drop the incomplete last batch of every pass; otherwise a batch may
            continue in the next pass.

    Example:
        >>> sampler = Sampler(torch.arange(5), batch_size=2, seed=0, name="labeled")
        >>> taken = torch.cat([sampler.batch(step) for step in range(5)])  # two passes
        >>> sorted(taken.tolist())
        [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    """

    def __init__(
        self, indices: Tensor, batch_size: int, seed: int, name: str, whole_batches: bool = False
    ) -> None:
        self._indices = indices
        self.batch_size = batch_size
        self._pass_length = len(indices)
        if whole_batches:
            self._pass_length -= len(indices) % batch_size
        if self._pass_length == 0:
            raise ValueError(
                f"{len(indices)} {name} samples are fewer than one batch of {batch_size}"
            )
        self._seed, self.name = seed, name

    def batch(self, step: int) -> Tensor:
        """Return the indices of step ``step``, counted from 0: (batch_size,) int64."""
        taken: list[Tensor] = []
        start, missing = step * self.batch_size, self.batch_size
        while missing:
            number, offset = divmod(start, self._pass_length)
            end = min(offset + missing, self._pass_length)
            piece = _shuffle(self._seed, self.name, number, len(self._indices))[offset:end]
            taken.append(piece)
            start, missing = start + len(piece), missing - len(piece)
        return self._indices[torch.cat(taken).long()]

    def substitute(self, step: int, index: int, attempt: int) -> int:
        """Draw an index that replaces an unreadable one.

        Args:
            step: the step, counted from 0.
            index: the index that cannot be read.
            attempt: number of earlier attempts in this step.
        """
        draw = make_generator(self._seed, self.name, "substitute", step, index, attempt)
        chosen = torch.randint(len(self._indices), (), generator=draw)
        return int(self._indices[chosen])


# A batch needs the current pass and at most the next one, for each of two samplers.
@lru_cache(maxsize=4)
def _shuffle(seed: int, name: str, number: int, count: int) -> Tensor:
    # The same numbers as with int64, in half the memory.
    kind = torch.int32 if count < 2**31 else torch.int64
    return torch.randperm(count, generator=make_generator(seed, name, number), dtype=kind)
