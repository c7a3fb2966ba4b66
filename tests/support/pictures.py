"""Small images on disk, each with a content of its own."""

from pathlib import Path

import numpy as np
from PIL import Image


def save_picture(path: Path, seed: int | None = None, side: int = 20) -> Path:
    """Write a picture whose pixels depend on the seed; by default on the name of its file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    seed = sum(map(ord, str(path))) if seed is None else seed
    coarse = np.random.default_rng(seed).integers(0, 256, (5, 5, 3), np.uint8)
    image = Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC)
    image.save(path, "JPEG" if path.suffix == ".jpg" else "PNG", quality=95)
    return path
