"""A data set in memory: every image once, as bytes."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from dualstudent.data.dataset import check_labels, relabeled
from dualstudent.errors import UserError


@dataclass(frozen=True)
class Images:
    """Labeled images of one size.

    Whatever the published range of a data set, here 0 is its darkest value and 255 its
    brightest: two data sets always meet on the same scale.

    Attributes:
        name: of the data set, for messages.
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

    def select(self, positions: Tensor) -> "Images":
        """Only the images at ``positions``, in that order."""
        return replace(self, pixels=self.pixels[positions], labels=self.labels[positions])

    def of_classes(self, names: Sequence[str]) -> "Images":
        """Only the images of the classes ``names``, labeled in the order of these."""
        kept, labels = relabeled(self, names)
        return Images(self.name, self.pixels[kept], labels, classes=tuple(names))

    def resized(self, size: int) -> "Images":
        """The images at ``size`` × ``size`` pixels, by cubic interpolation."""
        if self.pixels.shape[2:] == (size, size):
            return self
        # In pieces, so that the data set never exists as floats.
        pieces = [
            F.interpolate(piece.float(), (size, size), mode="bicubic", align_corners=False)
            .round_()
            .clamp_(0, 255)
            .to(torch.uint8)
            for piece in torch.split(self.pixels, 4096)
        ]
        return replace(self, pixels=torch.cat(pieces))

    def fingerprint(self) -> str:
        """A SHA-256 of images and labels: equal exactly if the data are."""
        digest = hashlib.sha256(repr(tuple(self.pixels.shape)).encode())
        digest.update(self.pixels.contiguous().numpy().data)
        digest.update(self.labels.contiguous().numpy().data)
        return digest.hexdigest()
