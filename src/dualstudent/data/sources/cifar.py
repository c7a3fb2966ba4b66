"""CIFAR-10 and CIFAR-100 in their published binary version (Krizhevsky, 2009)."""

import gzip
import math
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch

from dualstudent.data.datasets import Images
from dualstudent.data.paths import path_exists, raise_denied
from dualstudent.data.sources.files import (
    PublishedFile,
    fetch,
    raise_damaged,
    read_unpacked,
    refuse,
    warn_if_unpublished,
)
from dualstudent.data.sources.source import Source

_ADDRESS = "https://www.cs.toronto.edu/~kriz/"
_PUBLISHED = {"train": 50_000, "test": 10_000}
_MOST_BYTES = 2**28  # the largest file is 154 MB
_SHAPE = (3, 32, 32)  # a plane each of red, green and blue


@dataclass(frozen=True)
class _Cifar:
    """The files of a data set.

    Attributes:
        name: name of the data set.
        folder: folder of the files, extracted and in the archive.
        archive: the published archive.
        parts: part → its files in order, each with its SHA-256 if known.
        class_names: file of the class names.
        labels: number of classes of each label byte of a record; the last one is used.
    """

    name: str
    folder: str
    archive: PublishedFile
    parts: dict[str, dict[str, str | None]]
    class_names: str
    labels: tuple[int, ...]


_CIFAR10 = _Cifar(
    name="cifar10",
    folder="cifar-10-batches-bin",
    archive=PublishedFile(
        "cifar-10-binary.tar.gz",
        _ADDRESS,
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    ),
    parts={
        "train": {
            "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
            "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
            "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
            "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
            "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        },
        "test": {
            "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"
        },
    },
    class_names="batches.meta.txt",
    labels=(10,),
)
_CIFAR100 = _Cifar(
    name="cifar100",
    folder="cifar-100-binary",
    archive=PublishedFile(
        "cifar-100-binary.tar.gz",
        _ADDRESS,
        "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    ),
    parts={"train": {"train.bin": None}, "test": {"test.bin": None}},
    class_names="fine_label_names.txt",
    labels=(20, 100),
)


def load_cifar10(part: str, folder: Path) -> Images:
    """Load 50,000 training or 10,000 test images of 32 × 32 color pixels, in 10 classes.

    Args:
        part: ``"train"`` or ``"test"``.
        folder: the data folder. The extracted files are in ``cifar10/cifar-10-batches-bin``, or
            the archive is in ``cifar10``; it is downloaded if both are missing.
    """
    return _load(_CIFAR10, part, folder)


def load_cifar100(part: str, folder: Path) -> Images:
    """Load 50,000 training or 10,000 test images of 32 × 32 color pixels, in 100 fine classes.

    Args:
        part: ``"train"`` or ``"test"``.
        folder: the data folder. The extracted files are in ``cifar100/cifar-100-binary``, or the
            archive is in ``cifar100``; it is downloaded if both are missing.
    """
    return _load(_CIFAR100, part, folder)


def _load(cifar: _Cifar, part: str, folder: Path) -> Images:
    extracted = folder / cifar.name / cifar.folder
    names = (*cifar.parts[part], cifar.class_names)
    known: list[tuple[Path, str | None]]
    if path_exists(extracted):
        origin = extracted
        known = [(extracted / name, sha256) for name, sha256 in cifar.parts[part].items()]
        contents = _read_folder(extracted, names)
    else:
        origin = fetch(cifar.archive, folder / cifar.name)
        known = [(origin, cifar.archive.sha256)]
        contents = _read_archive(origin, cifar.folder, names)
    classes = tuple(contents.pop(cifar.class_names).decode(errors="replace").split())
    if len(classes) != cifar.labels[-1]:
        _refuse(
            origin / cifar.class_names,
            f"{len(classes)} class names, {cifar.name} has {cifar.labels[-1]}",
        )
    records = [_split_records(origin / name, contents[name], cifar) for name in cifar.parts[part]]
    pixels = np.concatenate([batch[:, len(cifar.labels) :] for batch in records])
    labels = np.concatenate([batch[:, len(cifar.labels) - 1] for batch in records])
    images = Images(
        f"{cifar.name} {part}",
        torch.from_numpy(pixels).reshape(-1, *_SHAPE),
        torch.from_numpy(labels).long(),
        classes,
    )
    warn_if_unpublished(images.name, known, found=len(images), expected=_PUBLISHED[part])
    return images


def _read_folder(folder: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    contents = {}
    for name in names:
        try:
            with raise_denied(folder / name):
                contents[name] = (folder / name).read_bytes()
        except OSError as error:
            _refuse(folder / name, f"cannot be read ({error.strerror})")
    return contents


def _read_archive(archive: Path, inside: str, names: tuple[str, ...]) -> dict[str, bytes]:
    """Read the files ``names`` in the folder ``inside`` of the archive."""
    contents = {}
    with (
        raise_damaged(
            archive, "broken or truncated", (OSError, EOFError, zlib.error, tarfile.TarError)
        ),
        gzip.open(archive) as unpacked,
        tarfile.open(fileobj=unpacked, mode="r:") as members,
    ):
        for member in members:
            folder, _, name = member.name.rpartition("/")
            if folder == inside and name in names and member.isreg():
                stream = members.extractfile(member)
                assert stream is not None  # a regular file has content
                contents[name] = read_unpacked(archive / name, stream, _MOST_BYTES)
        # To the end, where the checksum is; nothing but zeros is left there.
        read_unpacked(archive, unpacked, _MOST_BYTES)
    for name in names:
        if name not in contents:
            _refuse(archive / name, f"the archive has no {inside}/{name}")
    return contents


def _split_records(path: Path, content: bytes, cifar: _Cifar) -> np.ndarray:
    """Return (N, label bytes + 3072) uint8, sharing memory with ``content``."""
    size = len(cifar.labels) + math.prod(_SHAPE)
    if not content or len(content) % size:
        _refuse(
            path,
            f"{len(content):,} bytes are not a whole number of {cifar.name} records of "
            f"{size:,} bytes",
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, size)
    for column, classes in enumerate(cifar.labels):
        highest = records[:, column].max()
        if highest >= classes:
            _refuse(path, f"labels up to {highest}, {cifar.name} has 0 to {classes - 1}")
    return records


def _refuse(path: Path, why: str) -> NoReturn:
    refuse(path, why, delete=path.parent.name)  # the folder, or the archive


SOURCES = {
    "cifar10": Source(load_cifar10, 50_000, 10_000, 10, _SHAPE, family="cifar10"),
    "cifar100": Source(load_cifar100, 50_000, 10_000, 100, _SHAPE, family="cifar100"),
}
