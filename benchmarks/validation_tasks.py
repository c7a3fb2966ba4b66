"""Tasks to choose defaults on: few labels, and validation images from the training part only.

The published files, and a folder of photos `clothing/train`, are read from $DUALSTUDENT_DATA.
"""

import os
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps

from dualstudent import DataSettings, PreparedData, Transforms, prepare, prepare_arrays

# name → what it is loaded from, and its size in pixels if that is not the data set's own
TASKS = {
    "digits-8x8": ("digits-8x8", None),
    "mnist-5k": ("mnist-5k", None),
    "SVHN": ("svhn", None),
    "CIFAR-10": ("cifar10", None),
    "clothing, 32 px": ("clothing", 32),
    "clothing, 64 px": ("clothing", 64),
}
GRAY = {"digits-8x8", "mnist-5k"}
MAY_BE_MIRRORED = {"CIFAR-10", "clothing, 32 px", "clothing, 64 px"}
_MOST = 6_000  # unlabeled images
_LUMA = np.array([0.299, 0.587, 0.114])  # of red, green and blue, as in Pillow
_VALIDATION = 0.25  # share of the images, 2,000 at most


def prepare_task(
    task: str,
    per_class: int | None,
    seed: int,
    transforms: Transforms,
    most: int = _MOST,
    gray: bool = False,
    ratio: float | None = None,
    noise: float = 0.0,
    tint: float = 0.0,
) -> PreparedData:
    """Labels (None: all), unlabeled images, and validation images in the place of a test part.

    With a ratio, the first class has so many times as many images as the last one; 1: even classes.
    Noise is the standard deviation of what is added to the pixels, once and for all. A tint is so
    strong a change of color, of about the same hue for all images of a class.
    """
    images, labels = _load(task)
    if ratio is not None:
        images, labels = _thin_out(images, labels, ratio)
    if gray and images.shape[-1] == 3:
        images = (images @ _LUMA).round().astype(np.uint8)[..., None]
    generator = np.random.default_rng(seed)
    if noise:
        added = generator.normal(0, 255 * noise, images.shape)
        images = (images + added).clip(0, 255).astype(np.uint8)
    if tint:
        images = _tint(images, labels, tint, generator)
    order = generator.permutation(len(labels))
    held_out, rest = np.split(order, [min(2_000, int(_VALIDATION * len(order)))])
    rest = rest[:most]
    known = np.full(len(rest), -1)
    for label in range(labels.max() + 1):
        chosen = np.flatnonzero(labels[rest] == label)[:per_class]
        known[chosen] = label
    held = (images[held_out], labels[held_out])
    return prepare_arrays(images[rest], known, held, transforms)


def _thin_out(
    images: NDArray[np.uint8], labels: NDArray[np.int64], ratio: float
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Class by class fewer images; classes that are rarer than usual are left out."""
    counts = np.bincount(labels)
    kept = np.flatnonzero(counts >= 0.8 * np.median(counts))
    sizes = (counts[kept].min() * np.geomspace(1, 1 / ratio, len(kept))).round().astype(int)
    chosen = [np.flatnonzero(labels == k)[:n] for k, n in zip(kept, sizes, strict=True)]
    return images[np.concatenate(chosen)], np.repeat(np.arange(len(kept)), sizes)


def _tint(
    images: NDArray[np.uint8], labels: NDArray[np.int64], tint: float, draw: np.random.Generator
) -> NDArray[np.uint8]:
    """Move the colors of each image, brightness kept, in a direction near that of its class."""
    angles = 2 * np.pi * labels / (labels.max() + 1) + draw.normal(0, 0.5, len(labels))
    blue, red = 255 * tint * np.cos(angles), 255 * tint * np.sin(angles)
    change = np.stack([1.402 * red, -0.344 * blue - 0.714 * red, 1.772 * blue], axis=1)  # JPEG's
    moved: NDArray[np.float64] = images + change[:, None, None]
    return moved.clip(0, 255).astype(np.uint8)


def _load(task: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images (N, H, W, channels) and labels of the training part."""
    name, size = TASKS[task]
    if size is not None:
        return read_photos(Path(os.environ["DUALSTUDENT_DATA"]) / name / "train", size)
    data = prepare(DataSettings(source=name, labels="all"), seed=0)
    pixels = data.train.read_pixels(torch.arange(len(data.labels)))
    assert pixels is not None
    return pixels.permute(0, 2, 3, 1).numpy(), data.labels.numpy()


@cache
def read_photos(folder: Path, size: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    files = sorted(folder.glob("*/*"))
    names = sorted({file.parent.name for file in files})
    photos = [
        np.asarray(ImageOps.fit(Image.open(file).convert("RGB"), (size, size))) for file in files
    ]
    return np.stack(photos), np.array([names.index(file.parent.name) for file in files])
