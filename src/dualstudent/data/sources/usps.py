"""USPS in its published svmlight format (Hull, 1994; distributed by LIBSVM)."""

import bz2
from io import BytesIO
from pathlib import Path

import numpy as np
import torch

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

_ADDRESS = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass/"
_FILES = {
    "train": PublishedFile(
        "usps.bz2", _ADDRESS, "3771e9dd6ba685185f89867b6e249233dd74652389f263963b3b741e994b034f"
    ),
    "test": PublishedFile(
        "usps.t.bz2", _ADDRESS, "a9c0164e797d60142a50604917f0baa604f326e9a689698763793fa5d12ffc4e"
    ),
}
_PUBLISHED = {"train": 7_291, "test": 2_007}
_SIDE = 16
_MOST_BYTES = 2**27  # the training part is about 20 MB


def load_usps(part: str, folder: Path) -> Images:
    """Load 7,291 training or 2,007 test digits of 16 × 16 gray pixels.

    Args:
        part: ``"train"`` or ``"test"``.
        folder: the data folder; missing files are downloaded to ``usps`` in it.
    """
    from sklearn.datasets import load_svmlight_file  # takes long; most commands do without

    file = _FILES[part]
    path = fetch(file, folder / "usps")
    complaint = f"not a readable svmlight file of {_SIDE * _SIDE} values"
    with (
        raise_damaged(path, complaint, (OSError, EOFError, ValueError, OverflowError)),
        bz2.open(path) as unpacked,
    ):
        features, targets = load_svmlight_file(
            BytesIO(read_unpacked(path, unpacked, _MOST_BYTES)),
            n_features=_SIDE * _SIDE,
            zero_based=False,
        )
    values = features.toarray()
    if features.nnz == 0 or features.indices.max() + 1 != _SIDE * _SIDE:
        found = features.indices.max(initial=-1) + 1
        refuse(path, f"{found} values an image, USPS has {_SIDE * _SIDE}")
    if not np.abs(values).max() <= 1:
        refuse(path, f"pixel values up to {np.abs(values).max():g}, USPS has −1 to 1")
    if not np.isin(targets, np.arange(1, 11)).all():
        refuse(
            path,
            f"labels {targets.min():g} to {targets.max():g}, "
            "USPS has 1 to 10 for the digits 0 to 9",
        )
    gray = np.rint((values + 1) * 127.5).astype(np.uint8)
    images = Images(
        f"usps {part}",
        torch.from_numpy(gray).reshape(-1, 1, _SIDE, _SIDE),
        torch.from_numpy(targets.astype(np.int64) - 1),
        tuple(str(digit) for digit in range(10)),
    )
    warn_if_unpublished(
        images.name, [(path, file.sha256)], found=len(images), expected=_PUBLISHED[part]
    )
    return images


SOURCES = {"usps": Source(load_usps, 7_291, 2_007, 10, (1, 16, 16), family="usps")}
