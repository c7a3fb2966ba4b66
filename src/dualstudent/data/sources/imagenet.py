"""ImageNet (ILSVRC 2012): a folder of JPEG files per class, read while training."""

import os
from pathlib import Path

import numpy as np
import torch

from dualstudent.data.datasets import ImageFiles
from dualstudent.data.paths import path_exists, raise_denied
from dualstudent.data.sources.files import warn_if_unpublished
from dualstudent.data.sources.source import Source
from dualstudent.errors import UserError

_FOLDERS = {"train": "train", "test": "val"}
_PUBLISHED = {"train": 1_281_167, "test": 50_000}
_ENDINGS = (".jpeg", ".jpg")


def load_imagenet(part: str, folder: Path) -> ImageFiles:
    """List 1,281,167 training or 50,000 validation photos in 1000 classes.

    The labels of the published test set are not public, so the validation set is the test part, as
    is usual.

    Args:
        part: ``"train"`` or ``"test"``.
        folder: the data folder. The photos are in ``imagenet/train/SYNSET/*.JPEG`` and
            ``imagenet/val/SYNSET/*.JPEG``.
    """
    root = folder / "imagenet"
    classes = _list_classes(root, "train")
    here = _list_classes(root, part)
    if unknown := sorted(set(here) - set(classes)):
        raise UserError(
            f"{root / _FOLDERS[part] / unknown[0]}: there is no such class in {root / 'train'}; "
            "put the training images of the class there, or remove the folder"
        )
    files, sizes, labels = [], [], []
    for name in here:
        found = _list_images(root / _FOLDERS[part] / name)
        files += [f"{name}/{file}".encode(errors="surrogateescape") for file, _ in found]
        sizes += [size for _, size in found]
        labels += [classes.index(name)] * len(found)
    images = ImageFiles(
        f"imagenet {part}",
        root / _FOLDERS[part],
        np.array(files),
        np.array(sizes, np.int64),
        torch.tensor(labels),
        tuple(classes),
    )
    folders = [(images.folder / here[0], None)]
    warn_if_unpublished(images.name, list(folders), found=len(images), expected=_PUBLISHED[part])
    return images


def _list_classes(root: Path, part: str) -> list[str]:
    """List the names of the class folders, sorted.

    Raises:
        UserError: if there are none, or if images are outside of them.
    """
    folder = root / _FOLDERS[part]
    if not path_exists(folder):
        raise UserError(f"{folder}: not found; {_advise(root, part)}")
    with raise_denied(folder), os.scandir(folder) as entries:
        found = {entry.name: entry.is_dir() for entry in entries if entry.name[0] != "."}
    classes = sorted(name for name, is_folder in found.items() if is_folder)
    loose = [name for name in found if name.lower().endswith(_ENDINGS)]
    if loose:
        raise UserError(
            f"{folder}: {len(loose):,} images such as {loose[0]} lie outside class folders; move "
            f"each into {folder.name}/SYNSET, the class that the development kit's list of "
            "labels gives it"
        )
    if not classes:
        raise UserError(f"{folder}: holds no class folders; {_advise(root, part)}")
    return classes


def _advise(root: Path, part: str) -> str:
    """Say which archive to get, or to extract if it is there already."""
    name, published = _FOLDERS[part], f"ILSVRC2012_img_{_FOLDERS[part]}.tar"
    for place in (root / name, root, root.parent):
        archives = sorted(place.glob("*.tar")) if place == root / name else [place / published]
        if archives and path_exists(archives[0]):
            return (
                f"extract {archives[0]} so that the images lie in {root / name}/SYNSET/*.JPEG, "
                "a folder for each class"
            )
    return (
        f"ImageNet cannot be downloaded freely: get {published} from image-net.org and extract "
        f"it so that the images lie in {root / name}/SYNSET/*.JPEG"
    )


def _list_images(folder: Path) -> list[tuple[str, int]]:
    """List names and file sizes of the images of one class, sorted."""
    with raise_denied(folder), os.scandir(folder) as entries:
        found = sorted(
            (entry.name, entry.stat().st_size)
            for entry in entries
            if entry.name.lower().endswith(_ENDINGS) and entry.name[0] != "."
        )
    if not found:
        raise UserError(f"{folder}: holds no images; put those of the class in, or remove it")
    return found


SOURCES = {
    "imagenet": Source(
        load_imagenet, 1_281_167, 50_000, 1000, (3, 224, 224), family="imagenet", streamed=True
    )
}
