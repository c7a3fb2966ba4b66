"""What a run sees and what has a label: chosen at random, balanced, by seed, and written down."""

import json
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from dualstudent.data.images import Images
from dualstudent.errors import UserError
from dualstudent.randomness import generator_for


def choose_labeled(images: Images, count: int, seed: int) -> Tensor:
    """Positions of ``count`` samples, equally many of each class, sorted.

    Args:
        images: to choose from.
        count: a multiple of the number of classes.
        seed: decides the choice.
    """
    return _balanced(images, count, seed, "labels")


def choose_images(images: Images, count: int, seed: int) -> Tensor:
    """Positions of ``count`` samples that a run may see at all, chosen like those with a label.

    The choice of labels from what is left is independent of this one.
    """
    return _balanced(images, count, seed, "images")


def _balanced(images: Images, count: int, seed: int, what: Literal["labels", "images"]) -> Tensor:
    classes = len(images.classes)
    each, rest = divmod(count, classes)
    if rest or each == 0:
        raise UserError(
            f"data.{what} = {count} cannot be balanced over the {classes} classes of "
            f"{images.name}; use a multiple of {classes}"
        )
    shuffled = torch.randperm(len(images), generator=generator_for(seed, what))
    chosen = []
    for label, name in enumerate(images.classes):
        members = shuffled[images.labels[shuffled] == label]
        if len(members) < each:
            raise UserError(
                f"data.{what} = {count} asks for {each} {what} of class {name!r}, "
                f"but {images.name} has {len(members)}"
            )
        chosen.append(members[:each])
    return torch.cat(chosen).sort().values


def write_manifest(path: Path, images: Images, labeled: Tensor, seed: int) -> None:
    """Write down which samples of which data have a label, so that it can be repeated."""
    manifest = {
        "data": images.name,
        "images": len(images),
        "sha256": images.fingerprint(),
        "seed": seed,
        "per_class": {
            name: int((images.labels[labeled] == label).sum())
            for label, name in enumerate(images.classes)
        },
        "labeled": labeled.tolist(),
    }
    path.write_text(json.dumps(manifest, indent=1) + "\n")


def read_manifest(path: Path, images: Images) -> Tensor:
    """The labeled positions of a manifest, refused if it belongs to other data."""
    manifest = _parsed(path)
    if manifest["sha256"] != images.fingerprint():
        raise UserError(
            f"{path}: belongs to {manifest['data']!r} with {manifest['images']} images and other "
            f"content than the {len(images):,} images of {images.name!r} found now"
        )
    labeled, allowed = manifest["labeled"], range(len(images))
    if (
        not isinstance(labeled, list)
        or not labeled
        or not all(type(position) is int and position in allowed for position in labeled)
        or len(set(labeled)) < len(labeled)
    ):
        raise UserError(
            f"{path}: 'labeled' must be a list of different positions below {len(images):,}"
        )
    return torch.tensor(labeled)


def _parsed(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads(path.read_text())
        return {key: manifest[key] for key in ("data", "images", "sha256", "labeled")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: not a readable split manifest ({error!r})") from error
