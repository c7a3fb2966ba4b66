"""Samples whose views are features of images: computed before, or on demand."""

import math
from collections.abc import Mapping, Sequence
from copy import copy
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dualstudent.data.features import Standardization
from dualstudent.data.samples import Digest, Samples
from dualstudent.data.transforms.policy import Draw
from dualstudent.trunks.trunk import StandardizedTrunk


class KeptRows(NamedTuple):
    """The features of one view of N images.

    Attributes:
        table: (M, features) float16, mapped from a file that may be larger than the memory.
        rows: (N,) the row of each image.
    """

    table: NDArray[np.float16]
    rows: NDArray[np.int64]

    def take(self, indices: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the features (B, features) of the images at ``indices``."""
        found = torch.from_numpy(np.asarray(self.table[self.rows[indices]]))
        return found.float().numpy()  # NumPy would take several times as long


class KeptFeatures(Samples):
    """Feature vectors of images, by a frozen trunk; a view is drawn from those that were kept.

    Args:
        images: the images.
        clean: features of the clean images.
        views: features of some views by policy; without any, its views are clean.
        standardization: applied to all features.
        identity: differs if trunk or views do.
        weights: checksum of the trunk's weights.
    """

    def __init__(
        self,
        images: Samples,
        clean: KeptRows,
        views: Mapping[str, Sequence[KeptRows]],
        standardization: Standardization,
        identity: str,
        weights: str,
    ) -> None:
        self.images, self.standardization = images, standardization
        self.identity, self.weights = identity, weights
        self._clean, self._views, self._device = clean, views, torch.device("cpu")
        self.has_strong_views = bool(views.get("strong"))

    @property
    def shape(self) -> tuple[int, ...]:
        return (self._clean.table.shape[1],)

    @property
    def value_range(self) -> float:
        chosen = pick_some(len(self))
        if len(chosen) == 0:
            return 0.0
        (some,) = self.make_views(torch.from_numpy(chosen), [None])
        return float(some.max() - some.min())

    def __len__(self) -> int:
        return len(self._clean.rows)

    def make_views(self, indices: Tensor, draws: Sequence[Draw | None]) -> list[Tensor]:
        wanted = indices.cpu().numpy()
        mean, std = (each.float().to(self._device) for each in self.preprocessing().values())
        return [
            (torch.from_numpy(self._draw(wanted, draw)).to(self._device) - mean) / std
            for draw in draws
        ]

    def read_pixels(self, indices: Tensor) -> Tensor | None:
        return self.images.read_pixels(indices)

    def update_digest(self, digest: Digest) -> None:
        self.images.update_digest(digest)
        digest.update(self.identity.encode())

    def preprocessing(self) -> dict[str, Tensor]:
        scale = self.standardization
        return {"mean": torch.from_numpy(scale.mean), "std": torch.from_numpy(scale.std)}

    def to(self, device: torch.device | str) -> Self:
        there = copy(self)
        there._device = torch.device(device)
        return there

    def _draw(self, indices: NDArray[np.int64], draw: Draw | None) -> NDArray[np.float32]:
        """Draw one of the kept views of every image, (B, features)."""
        kept = () if draw is None else self._views.get(draw.policy, ())
        if draw is None or not kept:
            return self._clean.take(indices)
        generator, shape = draw.generator, (len(indices) * draw.shard.world_size,)
        drawn = torch.randint(len(kept), shape, generator=generator, device=generator.device)
        numbers = draw.shard.select(drawn).cpu().numpy()
        vectors = np.empty((len(indices), *self.shape), np.float32)
        for number in np.unique(numbers):
            mine = numbers == number
            vectors[mine] = kept[number].take(indices[mine])
        return vectors


class ComputedFeatures(Samples):
    """Feature vectors of images, computed by a frozen trunk when they are asked for.

    Unlike kept ones, they are not rounded to half precision.

    Args:
        images: the images, normalized as the trunk expects them.
        trunk: maps them to standardized features.
    """

    streamed = True  # the trunk may be on a GPU

    def __init__(self, images: Samples, trunk: StandardizedTrunk) -> None:
        self.images, self.trunk = images, trunk
        self.workers, self.tally = images.workers, images.tally

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.trunk.mean.shape)

    @property
    def value_range(self) -> float:
        return math.inf  # unknown before they are computed

    def __len__(self) -> int:
        return len(self.images)

    def make_views(self, indices: Tensor, draws: Sequence[Draw | None]) -> list[Tensor]:
        return self.finish_views(self.make_raw_views(indices, draws))

    def make_raw_views(self, indices: Tensor, draws: Sequence[Draw | None]) -> list[Tensor]:
        return self.images.make_raw_views(indices, draws)

    def finish_views(self, raw: list[Tensor]) -> list[Tensor]:
        return [self.trunk.compute(view) for view in self.images.finish_views(raw)]

    def read_pixels(self, indices: Tensor) -> Tensor | None:
        return self.images.read_pixels(indices)

    def update_digest(self, digest: Digest) -> None:
        raise TypeError("features that are computed on demand have no fingerprint")

    def to(self, device: torch.device | str) -> Self:
        return self  # views are made on the CPU; the trunk is moved by its owner


def pick_some(count: int, most: int = 10_000) -> NDArray[np.int64]:
    """Pick at most ``most`` of ``count`` samples, evenly, to measure them in bounded memory."""
    return np.linspace(0, max(0, count - 1), min(most, count)).astype(np.int64)
