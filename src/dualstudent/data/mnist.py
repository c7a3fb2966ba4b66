"""MNIST in its published idx format (LeCun, Cortes & Burges, 1998)."""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dualstudent.data.files import PublishedFile, fetch, warn_if_unknown
from dualstudent.data.images import Images
from dualstudent.errors import UserError

_ADDRESS = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_FILES = {
    "train": (
        PublishedFile("train-images-idx3-ubyte.gz", _ADDRESS, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        PublishedFile("train-labels-idx1-ubyte.gz", _ADDRESS, "d53e105ee54ea40749a09fcbcd1e9432"),
    ),
    "test": (
        PublishedFile("t10k-images-idx3-ubyte.gz", _ADDRESS, "9fb629c4189551a2d022fa330f9573f3"),
        PublishedFile("t10k-labels-idx1-ubyte.gz", _ADDRESS, "ec29112dd5afa0611ce80d1b7f02629c"),
    ),
}
_PUBLISHED = {"train": 60_000, "test": 10_000}
_MAGIC = {3: 2051, 1: 2049}  # unsigned bytes in 3 dimensions, in 1


def load_mnist(part: str, folder: Path) -> Images:
    """60,000 training or 10,000 test digits of 28 × 28 grey pixels.

    Args:
        part: ``"train"`` or ``"test"``.
        folder: the data folder; the files are looked for in its ``mnist`` sub-folder.
    """
    image_file, label_file = _FILES[part]
    image_path, label_path = (
        fetch(image_file, folder / "mnist"),
        fetch(label_file, folder / "mnist"),
    )
    pixels = read_idx(image_path, dimensions=3)
    labels = read_idx(label_path, dimensions=1)
    if pixels.shape[1:] != (28, 28):
        raise UserError(
            f"{image_path}: images of {pixels.shape[1]}×{pixels.shape[2]}, MNIST has 28×28"
        )
    if len(pixels) != len(labels):
        raise UserError(
            f"{image_path}: {len(pixels):,} images but {len(labels):,} labels in {label_path}"
        )
    if len(pixels) == 0:
        raise UserError(f"{image_path}: holds no images")
    if labels.max() > 9:
        raise UserError(
            f"{label_path}: labels {int(labels.min())} to {int(labels.max())}, MNIST has 0 to 9"
        )
    images = Images(
        f"mnist {part}",
        pixels.unsqueeze(1),
        labels.long(),
        tuple(str(digit) for digit in range(10)),
    )
    warn_if_unknown(
        images.name,
        [(image_path, image_file), (label_path, label_file)],
        found=len(images),
        expected=_PUBLISHED[part],
    )
    return images


def read_idx(path: Path, dimensions: int) -> Tensor:
    """A gzipped idx file of unsigned bytes, checked against its own header."""
    try:
        content = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(
            f"{path}: broken or truncated ({error}); delete it to download it again"
        ) from error
    header = 4 * (1 + dimensions)
    if len(content) < header:
        raise UserError(f"{path}: {len(content)} bytes are too few for an idx header")
    magic, *shape = struct.unpack_from(f">{1 + dimensions}I", content)
    if magic != _MAGIC[dimensions]:
        raise UserError(
            f"{path}: magic number {magic}, "
            f"an idx file of {dimensions} dimension(s) has {_MAGIC[dimensions]}"
        )
    if len(content) - header != math.prod(shape):
        raise UserError(
            f"{path}: the header announces {math.prod(shape):,} bytes "
            f"but {len(content) - header:,} follow; the file is truncated or damaged"
        )
    values = np.frombuffer(content, np.uint8, offset=header).reshape(shape)
    return torch.from_numpy(values.copy())
