"""Whole numbers in few bytes, for what there is one of for each of millions of images."""

from collections.abc import Callable
from copy import copy
from typing import Any, Self, TypeVar

import torch
from torch import Tensor

_KINDS = (torch.int8, torch.int16, torch.int32, torch.int64)

Class = TypeVar("Class", bound=type)


class Packed:
    """Whole numbers that are kept in few bytes and read as int64.

    Ascending numbers with few gaps are kept as the places of these gaps: almost all samples are
    unlabeled, so a list of them would say little. Others have the smallest type that fits.

    Args:
        values: (N,), whole numbers.

    Example:
        >>> packed = Packed(torch.tensor([3, 4, 5, 8, 9]))
        >>> packed[torch.tensor([0, 3])]
        tensor([3, 8])
    """

    def __init__(self, values: Tensor) -> None:
        self._count = len(values)
        self._first: int | None = None
        least, most = (int(each) for each in values.aminmax()) if len(values) else (0, 0)
        steps = values.long().diff()
        if most - least < 2 * len(values) and bool((steps > 0).all()):
            # For each number that is left out, how many come before it.
            values, self._first = torch.repeat_interleave(steps - 1) + 1, least
            least, most = 0, self._count
        limits = ((kind, torch.iinfo(kind)) for kind in _KINDS)
        fits = (kind for kind, limit in limits if limit.min <= least and most <= limit.max)
        self._kept = values.to(next(fits))

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, places: Tensor) -> Tensor:
        """Return the numbers at ``places``, int64, of the same shape and on the same device."""
        if self._first is None:
            return self._kept[places].long()
        left_out = torch.searchsorted(self._kept, places.to(self._kept.dtype), right=True)
        return places + left_out + self._first

    @property
    def nbytes(self) -> int:
        """Bytes that the numbers take."""
        return self._kept.nbytes

    def unpack(self) -> Tensor:
        """Return all numbers, (N,) int64."""
        return self[torch.arange(self._count, device=self._kept.device)]

    def to(self, device: torch.device | str) -> Self:
        """Return the same numbers on ``device``."""
        moved = copy(self)
        moved._kept = self._kept.to(device)
        return moved


def pack_fields(*names: str) -> Callable[[Class], Class]:
    """Let a dataclass keep these fields packed; reading one makes a new tensor of all numbers."""

    def add_descriptors(kind: Class) -> Class:
        for name in names:
            setattr(kind, name, _PackedField(name))
        return kind

    return add_descriptors


def get_packed(instance: object, name: str) -> Packed:
    """Return a field of a class with :func:`pack_fields` as it is kept."""
    packed: Packed = vars(instance)[name]
    return packed


class _PackedField:
    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: Any = None) -> "Tensor | _PackedField":
        if instance is None:  # the class is asked, not an instance
            return self
        return get_packed(instance, self._name).unpack()

    def __set__(self, instance: object, values: Tensor) -> None:
        vars(instance)[self._name] = Packed(values)
