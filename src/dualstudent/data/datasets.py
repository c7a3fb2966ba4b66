"""Labeled data sets: images in memory, or image files."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dualstudent.data.transforms.pillow import to_gray
from dualstudent.data.transforms.resize import resize
from dualstudent.errors import UserError

Part = Literal["train", "test"]

_NAMES_SHOWN = 20


class Labels(Protocol):
    """The labels of a data set, without its images."""

    @property
    def name(self) -> str:
        """Name of the data set, for messages."""

    @property
    def labels(self) -> Tensor:
        """(N,) int64 in [0, C)."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the C classes."""

    def __len__(self) -> int: ...

    def fingerprint(self) -> str:
        """Return a hash that is equal exactly if the data are."""


class DataSet(Labels, Protocol):
    """A labeled data set: images in memory, or image files."""

    @property
    def channels(self) -> int: ...

    @property
    def image_size(self) -> int:
        """Default size in pixels a side."""

    def select(self, indices: Tensor) -> Self:
        """Keep the images at ``indices``, in that order."""

    def select_classes(self, names: Sequence[str]) -> Self:
        """Keep the images of the classes ``names``; label i is then ``names[i]``."""


def check_labels(data: DataSet) -> None:
    """Check that there are images and that all labels are in [0, C).

    Raises:
        UserError: otherwise.
    """
    if len(data) == 0:
        raise UserError(f"{data.name}: holds no images")
    lowest, highest = int(data.labels.min()), int(data.labels.max())
    if lowest < 0 or highest >= len(data.classes):
        raise UserError(
            f"{data.name}: labels run from {lowest} to {highest}; "
            f"its {len(data.classes)} classes allow 0 to {len(data.classes) - 1}"
        )


def relabel(data: DataSet, names: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Find the images of the classes ``names``.

    Returns:
        Their indices, and their labels as positions in ``names``.

    Raises:
        UserError: if a name is unknown or given twice.
    """
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


@dataclass(frozen=True)
class Images:
    """Labeled images of one size, in memory.

    The published value range is mapped to 0 … 255, so that all data sets have the same scale.

    Attributes:
        name: name of the data set, for messages.
        pixels: (N, channels, H, W) uint8.
        labels: (N,) int64 in [0, C).
        classes: the names of the C classes.
    """

    name: str
    pixels: Tensor
    labels: Tensor
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.pixels) != len(self.labels):
            raise UserError(
                f"{self.name}: {len(self.pixels)} images but {len(self.labels)} labels; "
                "the files do not belong together"
            )
        check_labels(self)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def channels(self) -> int:
        return self.pixels.shape[1]

    @property
    def image_size(self) -> int:
        return self.pixels.shape[-1]

    def select(self, indices: Tensor) -> "Images":
        return replace(self, pixels=self.pixels[indices], labels=self.labels[indices])

    def select_classes(self, names: Sequence[str]) -> "Images":
        kept, labels = relabel(self, names)
        return Images(self.name, self.pixels[kept], labels, classes=tuple(names))

    def resize(self, size: int) -> "Images":
        """Resize all images to ``size`` × ``size`` pixels by :func:`~.transforms.resize.resize`."""
        if self.pixels.shape[2:] == (size, size):
            return self
        # In pieces, so that there is never a float copy of the data set.
        pieces = [resize(piece, size) for piece in torch.split(self.pixels, 4096)]
        return replace(self, pixels=torch.cat(pieces))

    def to_gray(self) -> "Images":
        """Turn colors gray, as Pillow does; gray images are returned as they are."""
        if self.channels == 1:
            return self
        pieces = [to_gray(piece) for piece in torch.split(self.pixels, 4096)]
        return replace(self, pixels=torch.cat(pieces))

    def fingerprint(self) -> str:
        """Return the SHA-256 of images and labels."""
        digest = hashlib.sha256(repr(tuple(self.pixels.shape)).encode())
        digest.update(self.pixels.contiguous().numpy().data)
        digest.update(self.labels.contiguous().numpy().data)
        return digest.hexdigest()


@dataclass(frozen=True)
class ImageFiles:
    """Labeled image files below one folder; their content is read later.

    Attributes:
        name: name of the data set, for messages.
        folder: folder of the files.
        files: (N,) paths relative to ``folder``, as bytes to save memory.
        sizes: (N,) int64, file sizes in bytes.
        labels: (N,) int64 in [0, C).
        classes: the names of the C classes.
    """

    name: str
    folder: Path
    files: NDArray[np.bytes_]
    sizes: NDArray[np.int64]
    labels: Tensor
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        check_labels(self)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def channels(self) -> int:
        return 3

    @property
    def image_size(self) -> int:
        return 224  # the usual size for ImageNet networks

    def path(self, index: int) -> Path:
        """Return the path of the image at ``index``."""
        return self.folder / os.fsdecode(self.files[index])

    def select(self, indices: Tensor) -> "ImageFiles":
        where = indices.numpy()
        return replace(
            self, files=self.files[where], sizes=self.sizes[where], labels=self.labels[indices]
        )

    def select_classes(self, names: Sequence[str]) -> "ImageFiles":
        kept, labels = relabel(self, names)
        return replace(self.select(kept), labels=labels, classes=tuple(names))

    def fingerprint(self) -> str:
        """Return the SHA-256 of names, file sizes and labels; hashing contents would take hours."""
        digest = hashlib.sha256(b"\0".join(self.files.tolist()))
        digest.update(self.sizes.tobytes())
        digest.update(self.labels.contiguous().numpy().data)
        return digest.hexdigest()
