"""A data set too large for memory: the names of its image files, and a label for each."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dualstudent.data.dataset import check_labels, relabeled


@dataclass(frozen=True)
class ImageFiles:
    """Labeled image files below one folder; what is in them is not looked at.

    Attributes:
        name: of the data set, for messages.
        folder: that the files are in.
        files: (N,) their paths within it, as bytes: a few tens of megabytes for a million.
        sizes: (N,) int64, of each in bytes.
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
        return 224  # what networks for photos were designed for

    def path(self, position: int) -> Path:
        """Where the image at ``position`` is."""
        return self.folder / os.fsdecode(self.files[position])

    def select(self, positions: Tensor) -> "ImageFiles":
        """Only the images at ``positions``, in that order."""
        where = positions.numpy()
        return replace(
            self, files=self.files[where], sizes=self.sizes[where], labels=self.labels[positions]
        )

    def of_classes(self, names: Sequence[str]) -> "ImageFiles":
        """Only the images of the classes ``names``, labeled in the order of these."""
        kept, labels = relabeled(self, names)
        return replace(self.select(kept), labels=labels, classes=tuple(names))

    def fingerprint(self) -> str:
        """A SHA-256 of names, sizes and labels; the content of so much data would take hours."""
        digest = hashlib.sha256(b"\0".join(self.files.tolist()))
        digest.update(self.sizes.tobytes())
        digest.update(self.labels.contiguous().numpy().data)
        return digest.hexdigest()
