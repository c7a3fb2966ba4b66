"""The formats in which CIFAR, MNIST, SVHN and USPS are published, written."""

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
from scipy.io import savemat

Contents = dict[str, bytes]
"""Name of a file → its content."""

NAMES10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
NAMES100 = tuple(f"fine_{number}" for number in range(100))
CIFAR_FOLDERS = {10: ("cifar10", "cifar-10-batches-bin"), 100: ("cifar100", "cifar-100-binary")}
GRAY = np.linspace(-1, 1, 256)


def name_lines(names: tuple[str, ...]) -> bytes:
    return "\n".join((*names, "", "")).encode()  # the published files end with an empty line


def write_cifar_folder(folder: Path, contents: Contents, classes: int = 10) -> Path:
    extracted = folder.joinpath(*CIFAR_FOLDERS[classes])
    extracted.mkdir(parents=True)
    for name, content in contents.items():
        (extracted / name).write_bytes(content)
    return extracted


def idx(values: np.ndarray, magic: int | None = None) -> bytes:
    magic = magic or {1: 2049, 3: 2051}[values.ndim]
    header = struct.pack(f">{1 + values.ndim}I", magic, *values.shape)
    return header + values.astype(np.uint8).tobytes()


def mat(compressed: bool = True, **variables: Any) -> bytes:
    written = io.BytesIO()
    savemat(written, variables, do_compression=compressed)
    return written.getvalue()


def write_svhn(folder: Path, content: bytes, name: str = "train_32x32.mat") -> Path:
    path = folder / "svhn" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path


def svmlight_line(label: float | str, values: np.ndarray = GRAY) -> str:
    pairs = (f"{index}:{value:.6f}" for index, value in enumerate(values, start=1) if value != 0)
    return f"{label} {' '.join(pairs)}\n"
