"""ImageNet in small, in its true format: real JPEG files of any size in class folders."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dualstudent import Recipe, load_recipe

SYNSETS = ("n01440764", "n01443537", "n02123045", "n03930630")
COLORS = ((200, 40, 40), (40, 200, 40), (40, 40, 200), (200, 200, 40))

STREAMED = (
    "data.source=imagenet",
    "data.labels=25%",
    "data.image_size=32",
    "normalization.mean=[0.485, 0.456, 0.406]",
    "normalization.std=[0.229, 0.224, 0.225]",
    "transforms.weak.translate=0",
    "transforms.weak.noise=0",
    "transforms.weak.random_resized_crop=true",
    "transforms.weak.flip=true",
    "transforms.weak.jitter=[0.4, 0.4, 0.4, 0.1]",
    "transforms.weak.rotate=10",
    "batch.size=12",
    "batch.labeled=4",
    "schedule.epochs=3",
    "schedule.rampup_epochs=1",
)

# The structure is right, the number of images is not that of the published files.
warns_of_the_count = pytest.mark.filterwarnings("ignore:imagenet:dualstudent.errors.DataWarning")


def write_imagenet(folder: Path, train: int = 16, val: int = 6) -> Path:
    """``folder``/imagenet with four classes that differ by their color; returns ``folder``."""
    for part, count in (("train", train), ("val", val)):
        for synset, color in zip(SYNSETS, COLORS, strict=True):
            for number in range(count):
                path = folder / "imagenet" / part / synset / f"{synset}_{number}.JPEG"
                write_photo(path, color, seed=number + (1000 if part == "val" else 0))
    return folder


def write_photo(path: Path, color: tuple[int, int, int], seed: int) -> None:
    """A blurred pattern around a color, of a size that depends on the seed."""
    draw = np.random.default_rng(seed)
    width, height = draw.integers(40, 90, 2).tolist()
    coarse = np.clip(draw.normal(color, 40, (6, 6, 3)), 0, 255).astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC).save(
        path, "JPEG", quality=92
    )


def streamed_recipe(folder: Path, workers: int, *changes: str) -> Recipe:
    """Dual Student on the photos of ``folder``, read while training: 3 epochs of 6 steps."""
    where = (f"data.folder='{folder}'", f"data.workers={workers}")
    return load_recipe("digits", [*STREAMED, *where, *changes])
