"""Samples that are read from image files whenever they are asked for."""

import warnings
from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from dualstudent.data.batching.broken import BrokenSamples, Tally
from dualstudent.data.datasets import ImageFiles
from dualstudent.data.images.decoding import UnreadableImage, decode
from dualstudent.data.samples import Digest, Samples
from dualstudent.data.transforms.normalization import Normalization, normalize
from dualstudent.data.transforms.photos import (
    NUMBERS_PER_VIEW,
    Chances,
    clean_view,
    perturbed_view,
)
from dualstudent.data.transforms.policy import Draw, Transform, Transforms
from dualstudent.errors import escape_line


class FileSamples(Samples):
    """Photos of any size, decoded once for all their views.

    Args:
        files: where they are.
        size: of the views, pixels a side.
        transforms: what perturbs a weak and a strong view.
        normalization: of the pixel values.
        workers: how many processes should read ahead.
        tally: of the photos that cannot be read.
    """

    def __init__(
        self,
        files: ImageFiles,
        size: int,
        transforms: Transforms,
        normalization: Normalization,
        workers: int = 0,
        tally: Tally | None = None,
    ) -> None:
        for transform in (transforms.weak, transforms.strong):
            transform.check_only(
                "random_resized_crop", "flip", "jitter", "rotate", where="read from files"
            )
        self._files, self._size = files, size
        self._transforms, self._normalization = transforms, normalization
        self.workers, self.tally = workers, tally
        self.streamed = True

    @property
    def shape(self) -> tuple[int, ...]:
        return (self._files.channels, self._size, self._size)

    @property
    def value_range(self) -> float:
        return 1 / min(self._normalization.std)

    def __len__(self) -> int:
        return len(self._files)

    def views(self, indices: Tensor, draws: Sequence[Draw | None]) -> list[Tensor]:
        return self.finished(self.unfinished(indices, draws))

    def unfinished(self, indices: Tensor, draws: Sequence[Draw | None]) -> list[Tensor]:
        """(B, channels, size, size) uint8 each: a quarter of the bytes to bring to the device."""
        numbers = [_uniform(len(indices), draw) for draw in draws]
        shape = (len(draws), len(indices), self._size, self._size, self._files.channels)
        pixels = np.empty(shape, np.uint8)
        broken: dict[int, str] = {}
        with warnings.catch_warnings(action="ignore"):  # about metadata that nobody looks at
            for row, index in enumerate(indices.tolist()):
                try:
                    photo = self._photo(index)
                except UnreadableImage as error:
                    broken[row] = escape_line(error)
                    continue
                for view, draw, table in zip(pixels, draws, numbers, strict=True):
                    transform = None if draw is None else self._transforms[draw.policy]
                    view[row] = np.asarray(self._view(photo, transform, table[row]))
        if broken:
            raise BrokenSamples(broken)
        return [torch.from_numpy(view).permute(0, 3, 1, 2) for view in pixels]

    def finished(self, unfinished: list[Tensor]) -> list[Tensor]:
        return [normalize(pixels, self._normalization) for pixels in unfinished]

    def pictures(self, indices: Tensor) -> Tensor | None:
        (clean,) = self.unfinished(indices, [None])
        return clean

    def identify(self, digest: Digest) -> None:
        digest.update(self._files.fingerprint().encode())

    def to(self, device: torch.device | str) -> Self:
        return self  # files stay where they are; their views are brought to the device

    def _photo(self, index: int) -> Image.Image:
        pixels = decode(self._files.path(index), channels=3)
        return Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0)))

    def _view(
        self, photo: Image.Image, transform: Transform | None, numbers: NDArray[np.float64]
    ) -> Image.Image:
        if transform is None:
            return clean_view(photo, self._size)
        return perturbed_view(photo, self._size, transform, Chances.of(numbers))


def _uniform(count: int, draw: Draw | None) -> NDArray[np.float64]:
    """(count, NUMBERS_PER_VIEW), drawn at once; a clean view needs none."""
    if draw is None:
        return np.empty((count, 0))
    return torch.rand(
        count, NUMBERS_PER_VIEW, generator=draw.generator, dtype=torch.float64
    ).numpy()
