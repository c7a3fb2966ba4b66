"""Data sets by name, where a test knows that they are in memory."""

from pathlib import Path

from dualstudent.data.datasets import Images, Part
from dualstudent.data.sources.catalog import load


def load_images(name: str, part: Part, folder: Path) -> Images:
    images = load(name, part, folder)
    assert isinstance(images, Images)
    return images
