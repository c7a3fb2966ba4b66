"""Samplers that choose the samples of each step."""

import torch
from torch import Tensor

from dualstudent.data.packed import Packed
from dualstudent.generators import make_generator


class Sampler:
    """Yields batches of ``indices`` without end, shuffled anew for every pass.

    The batch of a step is a function of (seed, name, step), so sampling can resume at any step.

    Args:
        indices: (N,), what to sample from.
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
        self,
        indices: Tensor | Packed,
        batch_size: int,
        seed: int,
        name: str,
        whole_batches: bool = False,
    ) -> None:
        self._indices = indices if isinstance(indices, Packed) else Packed(indices)
        self._pass: tuple[int, Tensor] | None = None  # the last one that was drawn
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
            piece = self._shuffle(number)[offset:end]
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

    def _shuffle(self, number: int) -> Tensor:
        """Return the places of pass ``number`` in their order; only those of one pass are kept."""
        if self._pass is None or self._pass[0] != number:
            self._pass = None  # frees its memory first
            count = len(self._indices)
            # The same numbers as with int64, in half the memory.
            kind = torch.int32 if count < 2**31 else torch.int64
            generator = make_generator(self._seed, self.name, number)
            self._pass = number, torch.randperm(count, generator=generator, dtype=kind)
        return self._pass[1]
