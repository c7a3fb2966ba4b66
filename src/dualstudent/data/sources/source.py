"""The description of a data set that recipes can name."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from dualstudent.data.datasets import ImageFiles, Images


class Source(NamedTuple):
    """A data set that recipes can name, with its published sizes, so that it need not be loaded.

    Attributes:
        load: reads its part ``"train"`` or ``"test"`` from a data folder.
        train: number of training images.
        test: number of test images.
        classes: number of classes.
        shape: channels, height and width of an image.
        family: data sets of one family share images, so none can be adapted to another.
        streamed: whether images are read from files while training, instead of kept in memory.
    """

    load: Callable[[str, Path], Images | ImageFiles]
    train: int
    test: int
    classes: int
    shape: tuple[int, int, int]
    family: str
    streamed: bool = False
