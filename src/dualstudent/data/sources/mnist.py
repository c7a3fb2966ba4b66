"""MNIST in its published idx format (LeCun, Cortes & Burges, 1998)."""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dualstudent.data.datasets import Images
from dualstudent.data.sources.files import (
    PublishedFile,
    fetch,
    raise_damaged,
    read_unpacked,
    refuse,
    warn_if_unpublished,
)
from dualstudent.data.sources.source import Source

_ADDRESS = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_FILES = {
    "train": (
        PublishedFile(
            "train-images-idx3-ubyte.gz",
            _ADDRESS,
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        ),
        PublishedFile(
            "train-labels-idx1-ubyte.gz",
            _ADDRESS,
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        ),
    ),
    "test": (
        PublishedFile(
            "t10k-images-idx3-ubyte.gz",
            _ADDRESS,
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        ),
        PublishedFile(
            "t10k-labels-idx1-ubyte.gz",
            _ADDRESS,
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    ),
}
_PUBLISHED = {"train": 60_000, "test": 10_000}
_MOST_BYTES = 2**27  # the images for training are 47 MB
_MAGIC = {3: 2051, 1: 2049}  # unsigned bytes in 3 dimensions, in 1


def load_mnist(part: str, folder: Path) -> Images:
    """Load 60,000 training or 10,000 test digits of 28 × 28 gray pixels.

    Args:
        part: ``"train"`` or ``"test"``.
        folder: the data folder; missing files are downloaded to ``mnist`` in it.
    """
    image_file, label_file = _FILES[part]
    image_path, label_path = (
        fetch(image_file, folder / "mnist"),
        fetch(label_file, folder / "mnist"),
    )
    pixels = read_idx(image_path, dimensions=3)
    labels = read_idx(label_path, dimensions=1)
    if pixels.shape[1:] != (28, 28):
        refuse(image_path, f"images of {pixels.shape[1]}×{pixels.shape[2]}, MNIST has 28×28")
    if len(pixels) != len(labels):
        refuse(
            image_path,
            f"{len(pixels):,} images but {len(labels):,} labels in {label_path}, "
            "so one of the two is not the published file",
        )
    if len(pixels) == 0:
        refuse(image_path, "holds no images")
    if labels.max() > 9:
        refuse(label_path, f"labels {int(labels.min())} to {int(labels.max())}, MNIST has 0 to 9")
    images = Images(
        f"mnist {part}",
        pixels.unsqueeze(1),
        labels.long(),
        tuple(str(digit) for digit in range(10)),
    )
    warn_if_unpublished(
        images.name,
        [(image_path, image_file.sha256), (label_path, label_file.sha256)],
        found=len(images),
        expected=_PUBLISHED[part],
    )
    return images


def read_idx(path: Path, dimensions: int) -> Tensor:
    """Read a gzipped idx file of unsigned bytes, and check it against its header."""
    with (
        raise_damaged(path, "broken or truncated", (OSError, EOFError, zlib.error)),
        gzip.open(path) as unpacked,
    ):
        content = read_unpacked(path, unpacked, _MOST_BYTES)
    header = 4 * (1 + dimensions)
    if len(content) < header:
        refuse(path, f"{len(content)} bytes are too few for an idx header")
    magic, *shape = struct.unpack_from(f">{1 + dimensions}I", content)
    if magic != _MAGIC[dimensions]:
        refuse(
            path,
            f"magic number {magic}, "
            f"an idx file of {dimensions} dimension(s) has {_MAGIC[dimensions]}",
        )
    if len(content) - header != math.prod(shape):
        refuse(
            path,
            f"the header announces {math.prod(shape):,} bytes "
            f"but {len(content) - header:,} follow, so the file is truncated or damaged",
        )
    values = np.frombuffer(content, np.uint8, offset=header).reshape(shape)
    return torch.from_numpy(values.copy())


SOURCES = {"mnist": Source(load_mnist, 60_000, 10_000, 10, (1, 28, 28), family="mnist")}
