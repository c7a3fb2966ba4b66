"""Own images that look the same from both sides, as files in folders."""

from pathlib import Path

import numpy as np
from PIL import Image


def write_lights(folder: Path, labels: int, mirrored: bool = True) -> Path:
    """Write ``labels`` yellow images a class, bright on the left or all over.

    If ``mirrored``, every other one is, so that mirror images look like their class.
    """
    for number in range(labels):
        for name, columns in (("left", slice(8)), ("all", slice(16))):
            pixels = np.random.default_rng(number).integers(0, 50, (16, 16), dtype=np.uint8)
            pixels[:, columns] += np.linspace(200, 100, 16, dtype=np.uint8)[columns]
            if mirrored and number % 2:
                pixels = pixels[:, ::-1]
            (folder / name).mkdir(parents=True, exist_ok=True)
            colors = np.stack([pixels, pixels, pixels // 2], axis=2)
            Image.fromarray(colors).save(folder / name / f"{number}.png")
    return folder
