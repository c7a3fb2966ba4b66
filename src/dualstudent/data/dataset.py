"""What every labeled data set has, wherever its images are."""

from collections.abc import Sequence
from typing import Protocol, Self

import torch
from torch import Tensor

from dualstudent.errors import UserError

_NAMES_SHOWN = 20


class DataSet(Protocol):
    """A labeled data set: images in memory, or files to read them from."""

    @property
    def name(self) -> str:
        """Of the data set, for messages."""

    @property
    def labels(self) -> Tensor:
        """(N,) int64 in [0, C)."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the C classes."""

    @property
    def channels(self) -> int: ...

    @property
    def image_size(self) -> int:
        """Pixels a side, if nobody asks for another number."""

    def __len__(self) -> int: ...

    def select(self, positions: Tensor) -> Self:
        """Only the images at ``positions``, in that order."""

    def of_classes(self, names: Sequence[str]) -> Self:
        """Only the images of the classes ``names``, labeled in the order of these."""

    def fingerprint(self) -> str:
        """Equal exactly if the data are."""


def check_labels(data: DataSet) -> None:
    """Refuse a data set without images, or with labels that are not among its classes."""
    if len(data) == 0:
        raise UserError(f"{data.name}: holds no images")
    lowest, highest = int(data.labels.min()), int(data.labels.max())
    if lowest < 0 or highest >= len(data.classes):
        raise UserError(
            f"{data.name}: labels run from {lowest} to {highest}; "
            f"its {len(data.classes)} classes allow 0 to {len(data.classes) - 1}"
        )


def relabeled(data: DataSet, names: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Where the images of the classes ``names`` are, and their labels in the order of these."""
    unknown = [name for name in names if name not in data.classes]
    if unknown or len(set(names)) < len(names):
        known = ", ".join(data.classes[:_NAMES_SHOWN])
        more = f" and {len(data.classes) - _NAMES_SHOWN} more"
        raise UserError(
            f"data.classes = {list(names)}: {data.name} has the classes {known}"
            f"{more if len(data.classes) > _NAMES_SHOWN else ''}; name each at most once"
        )
    new_label = torch.full((len(data.classes),), -1)
    new_label[[data.classes.index(name) for name in names]] = torch.arange(len(names))
    kept = (new_label[data.labels] >= 0).nonzero().squeeze(1)
    return kept, new_label[data.labels[kept]]
