"""Samples that are read from image files on demand."""

import warnings
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from dualstudent.data.broken import BrokenSamples, Tally
from dualstudent.data.datasets import ImageFiles
from dualstudent.data.images.decoding import UnreadableImage, decode
from dualstudent.data.samples import Digest, Samples
from dualstudent.data.transforms.normalization import Normalization, normalize
from dualstudent.data.transforms.policy import Draw, Numbers, Transforms, add_noise
from dualstudent.data.transforms.resize import PHOTO_MARGIN, resize
from dualstudent.errors import escape_line


class FileSamples(Samples):
    """Photos of any size; each is decoded once for all its views.

    Args:
        files: the image files.
        size: size of the views in pixels a side.
        transforms: perturbations of weak and strong views.
        normalization: normalization of the pixel values.
        workers: number of processes that read ahead.
        tally: counts the photos that cannot be read.
    """

    margin = PHOTO_MARGIN
    normalization: Normalization

    def __init__(
        self,
        files: ImageFiles,
        size: int,
        transforms: Transforms,
        normalization: Normalization,
        workers: int = 0,
        tally: Tally | None = None,
    ) -> None:
        normalization.check_fits(files.channels)
        transforms.check_fits(files.channels, size, size)
        self._files, self._size = files, size
        self._transforms, self.normalization = transforms, normalization
        # With noise, all views are made as floats, so that they can be joined.
        self._noisy = transforms.weak.noise > 0 or transforms.strong.noise > 0
        self.workers, self.tally = workers, tally
        self.streamed, self.has_strong_views = True, not transforms.strong.is_empty

    @property
    def shape(self) -> tuple[int, ...]:
        return (self._files.channels, self._size, self._size)

    @property
    def value_range(self) -> float:
        return 1 / min(self.normalization.std)

    def __len__(self) -> int:
        return len(self._files)

    def make_views(self, indices: Tensor, draws: Sequence[Draw | None]) -> list[Tensor]:
        return self.finish_views(self.make_raw_views(indices, draws))

    def make_raw_views(self, indices: Tensor, draws: Sequence[Draw | None]) -> list[Tensor]:
        """Make views (B, channels, size, size), in uint8 unless there is noise."""
        views = self._make_pixels(indices, draws)
        if not self._noisy:
            return views
        images = self.finish_views(views)
        for view, draw in zip(images, draws, strict=True):
            if draw is not None:
                noise = self._transforms[draw.policy].noise
                add_noise(view, noise, draw.generator, draw.shard)
        return images

    def finish_views(self, raw: list[Tensor]) -> list[Tensor]:
        return [
            view if view.is_floating_point() else normalize(view, self.normalization)
            for view in raw
        ]

    def read_pixels(self, indices: Tensor) -> Tensor | None:
        (clean,) = self._make_pixels(indices, [None])
        return clean

    def update_digest(self, digest: Digest) -> None:
        digest.update(self._files.fingerprint().encode())

    def to(self, device: torch.device | str) -> Self:
        return self  # views are made on the CPU and moved to the device later

    def _make_pixels(self, indices: Tensor, draws: Sequence[Draw | None]) -> list[Tensor]:
        """Make views (B, channels, size, size) uint8, without noise."""
        count = len(indices)
        numbers = [
            {}
            if draw is None
            else self._transforms[draw.policy].draw(count, draw.generator, draw.shard)
            for draw in draws
        ]
        shape = (len(indices), *self.shape)
        views = [torch.empty(shape, dtype=torch.uint8) for _ in draws]
        broken: dict[int, str] = {}
        for row, index in enumerate(indices.tolist()):
            try:
                photo = self._read_photo(index)
            except UnreadableImage as error:
                broken[row] = escape_line(error)
                continue
            for view, draw, drawn in zip(views, draws, numbers, strict=True):
                own = {key: table[row : row + 1] for key, table in drawn.items()}
                view[row] = self._make_view(photo, draw, own)[0]
        if broken:
            raise BrokenSamples(broken)
        return views

    def _read_photo(self, index: int) -> Tensor:
        """Decode a photo to (1, channels, H, W) uint8."""
        with warnings.catch_warnings(action="ignore"):  # about unused metadata
            return torch.from_numpy(decode(self._files.path(index), channels=3))[None]

    def _make_view(self, photo: Tensor, draw: Draw | None, numbers: Numbers) -> Tensor:
        """Make one view of a photo, (1, channels, size, size) uint8."""
        if draw is None:
            return resize(photo, self._size, self.margin)
        return self._transforms[draw.policy].apply(photo, numbers, self._size)
