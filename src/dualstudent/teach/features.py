"""Which features the loop learns from, and how they are computed, piece by piece."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from dualstudent.data.images.decoding import (
    Channels,
    Header,
    UnreadableImage,
    decode,
    read_header,
    resize,
)
from dualstudent.networks.efficientnet_lite import EfficientNetLite0
from dualstudent.parallel import count_cores, map_threads
from dualstudent.trunks.features import keep_clean_features
from dualstudent.trunks.patches import SIDE, PatchFeatures
from dualstudent.trunks.propagation import Vectors
from dualstudent.trunks.trunk import (
    SMALLEST_IMAGE,
    TrunkSettings,
    build_trunk,
    is_small_gray,
)

PIECE = 256  # images that are computed together
_MEASURED = 200  # images whose headers are read
_SMALLEST = 16  # pixels a side
_FIT_BY = 2000  # images that patches are learned from

Unreadable = dict[int, str]


class Extractor(Protocol):
    """Maps images to features.

    Attributes:
        name: for people.
        uses_line: whether logistic regression helps on these features.
    """

    name: str
    uses_line: bool

    def extract(self, pixels: torch.Tensor) -> Vectors:
        """Map images (n, channels, H, W) uint8 to features (n, d)."""


class TrunkExtractor:
    """Features of a pretrained trunk; they are kept on disk."""

    uses_line = True

    def __init__(self, settings: TrunkSettings, channels: Channels) -> None:
        self.name = f"features of {settings.name}"
        self._trunk = build_trunk(settings, channels)

    def extract(self, pixels: torch.Tensor) -> Vectors:
        return keep_clean_features(pixels, self._trunk)


class PatchExtractor:
    """Features by patches, learned from the first images that it sees."""

    uses_line = False
    name = "features of patches, learned from these images"

    def __init__(self) -> None:
        self._features: PatchFeatures | None = None

    def extract(self, pixels: torch.Tensor) -> Vectors:
        images = pixels.float() / 255
        self._features = self._features or PatchFeatures(images)
        return self._features(images)


def choose_extractor(
    paths: Sequence[Path], trunk: TrunkSettings | None = None
) -> tuple[Extractor, int, Channels]:
    """Choose features that suit the images, and the size and channels of the images for them.

    A pretrained trunk if its weights are installed and the images are not small and gray;
    otherwise patches.

    Args:
        paths: the images, in random order.
        trunk: of a run with the same images; its features have been kept.
    """
    typical, is_gray = _measure(paths[:_MEASURED])
    channels: Channels = 1 if is_gray else 3
    if trunk is None and _suits_trunk(typical, is_gray) and EfficientNetLite0.published.find():
        trunk = TrunkSettings(name="efficientnet-lite0")
    if trunk is not None:
        size = max(_SMALLEST, min(typical, trunk.image_size))
        return TrunkExtractor(trunk, channels), size, channels
    return PatchExtractor(), max(_SMALLEST, min(typical, SIDE)), channels


def _suits_trunk(side: int, is_gray: bool) -> bool:
    """Guess whether a trunk helps: without labels, nobody can measure it."""
    return side >= SMALLEST_IMAGE and not is_small_gray(side, is_gray)


def compute_features(
    paths: Sequence[Path], extractor: Extractor, size: int, channels: Channels
) -> Iterator[tuple[list[int], Vectors, Unreadable]]:
    """Decode images and compute their features, piece by piece.

    Args:
        paths: the images.
        extractor: maps them to features.
        size: in pixels a side; the center square of each image is resized to it.
        channels: of the images.

    Yields:
        Places in ``paths``, their features, and the places that cannot be read, with reasons.
    """
    first = _FIT_BY if isinstance(extractor, PatchExtractor) else PIECE
    start = 0
    while start < len(paths):
        end = start + (first if start == 0 else PIECE)
        yield _compute_piece(paths, range(start, min(end, len(paths))), extractor, size, channels)
        start = end


def _compute_piece(
    paths: Sequence[Path], places: range, extractor: Extractor, size: int, channels: Channels
) -> tuple[list[int], Vectors, Unreadable]:
    def read(place: int) -> NDArray[np.uint8] | str:
        try:
            return resize(decode(paths[place], channels), size)
        except UnreadableImage as unreadable:
            return unreadable.reason

    with map_threads(read, places, count_cores()) as results:
        found = dict(zip(places, results, strict=True))
    unreadable = {place: each for place, each in found.items() if isinstance(each, str)}
    read_ = {place: each for place, each in found.items() if not isinstance(each, str)}
    if not read_:
        return [], np.empty((0, 0), np.float32), unreadable
    pixels = torch.from_numpy(np.stack(list(read_.values())))
    return list(read_), extractor.extract(pixels), unreadable


def _measure(paths: Sequence[Path]) -> tuple[int, bool]:
    """Return the median short side in pixels, and whether all images are known to be gray."""
    headers = list[Header]()
    for path in paths:
        try:
            headers.append(read_header(path))
        except UnreadableImage:
            continue
    sides = [min(header.height, header.width) for header in headers] or [SIDE]
    return int(np.median(sides)), bool(headers) and all(header.is_gray for header in headers)
