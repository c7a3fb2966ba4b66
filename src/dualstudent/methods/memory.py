"""Writes what a method remembers about each sample."""

import torch
from torch import Tensor


def write_rows(memory: Tensor, indices: Tensor, values: Tensor) -> None:
    """Write a row for each sample; if a sample occurs several times, its last row counts.

    Args:
        memory: (N, …), changed in place.
        indices: (n,) int64, samples in [0, N); n at least 1.
        values: (n, …), their rows.

    Example:
        >>> memory = torch.zeros(3)
        >>> write_rows(memory, torch.tensor([2, 0, 2]), torch.tensor([5.0, 6.0, 7.0]))
        >>> memory
        tensor([6., 0., 7.])
    """
    # Equal indices write equal values, so the order of writing does not matter.
    memory.index_copy_(0, indices, values[_find_last_occurrences(indices)].to(memory.dtype))


def _find_last_occurrences(indices: Tensor) -> Tensor:
    """For each entry, find the position of the last entry that equals it.

    Example:
        >>> _find_last_occurrences(torch.tensor([7, 3, 7])).tolist()
        [2, 1, 2]
    """
    positions = torch.arange(len(indices), device=indices.device)
    equal = indices[:, None] == indices
    return (equal * positions).amax(dim=1)
