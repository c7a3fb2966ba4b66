"""Random, balanced choices of the images and labels of a run, and the files that record them."""

import json
import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from dualstudent.data.datasets import DataSet, Labels
from dualstudent.errors import UserError
from dualstudent.generators import make_generator


def choose_labeled(
    data: Labels,
    labels: int | str,
    seed: int,
    available: Tensor | None = None,
    imbalance: float = 1.0,
    setting: Literal["labels", "target_labels"] = "labels",
) -> Tensor:
    """Choose samples to label, equally many of each class unless ``imbalance`` is above 1.

    A number must be a multiple of the number of classes. A share such as ``"10%"`` of all N
    samples is ⌊N · share / C⌋ of each of the C classes, or a whole class if it has fewer: 10 % of
    the 1,281,167 images of ImageNet are 128 of each class.

    Args:
        data: the data set to choose from.
        labels: number or share of samples.
        seed: seed of the choice.
        available: (n,) int64, indices of the samples to choose from; default: all.
        imbalance: how many times as many the first class has as the last, see
            :func:`choose_images`.
        setting: where the number was set, for error messages.

    Returns:
        Their indices, sorted.

    Raises:
        UserError: if the number cannot be balanced, or a class is too small.
    """
    return _choose_by_class(data, labels, seed, setting, available, imbalance)


def count_labeled(labels: int | str, samples: int, classes: int) -> int:
    """Count the samples that :func:`choose_labeled` chooses, if no class is too small.

    Args:
        labels: number or share of samples, or "all".
        samples: number of samples to choose from.
        classes: number of classes.

    Raises:
        UserError: if a share is less than one sample of each class.

    Example:
        >>> count_labeled("10%", samples=1_281_167, classes=1000)
        128000
    """
    if isinstance(labels, int):
        return min(labels, samples)
    return samples if labels == "all" else _divide(labels, "labels", samples, classes) * classes


def choose_images(data: DataSet, count: int | None, seed: int, imbalance: float = 1.0) -> Tensor:
    """Choose samples to use at all: equally many of each class unless ``imbalance`` is above 1.

    Then the numbers of the C classes are proportional to imbalance^(−c / (C − 1)), c = 0 … C − 1,
    and rounded so that their sum is ``count``. It is independent of the choice of labels. Returns
    sorted indices.

    Args:
        data: the data set to choose from.
        count: number of samples, a multiple of the number of classes if they are balanced; default:
            as many as there are in these proportions.
        seed: seed of the choice.
        imbalance: how many times as many samples the first class has as the last.

    Example:
        >>> from dualstudent import load_mnist_5k
        >>> digits = load_mnist_5k("train")
        >>> choose_images(digits, count=500, seed=0).shape
        torch.Size([500])
        >>> uneven = choose_images(digits, count=None, seed=0, imbalance=10)
        >>> digits.labels[uneven].bincount().tolist()
        [400, 309, 240, 185, 144, 111, 86, 67, 52, 40]
    """
    if count is None:
        weights = _weigh_classes(len(data.classes), imbalance)
        sizes = data.labels.bincount(minlength=len(weights)).tolist()
        most = min(size / weight for size, weight in zip(sizes, weights, strict=True))
        count = math.floor(most * sum(weights) + 1e-6)  # against errors of rounding
    return _choose_by_class(data, count, seed, "images", imbalance=imbalance)


def choose_share(labels: Tensor, count: int, seed: int) -> Tensor:
    """Choose ``count`` samples, of each class its share of all, to within one sample.

    Fewer samples of the same seed are always some of those of more.

    Args:
        labels: (N,) int64.
        count: number of samples, at most N.
        seed: seed of the choice.

    Returns:
        Their indices, sorted.

    Example:
        >>> labels = torch.tensor([0] * 8 + [1] * 4)
        >>> labels[choose_share(labels, 6, seed=0)].bincount().tolist()
        [4, 2]
    """
    shuffled = torch.randperm(len(labels), generator=make_generator(seed, "share"))
    sizes = labels.bincount()
    rank = torch.empty(len(labels), dtype=torch.float64)
    for label, size in enumerate(sizes.tolist()):
        members = shuffled[labels[shuffled] == label]
        rank[members] = (torch.arange(size) + 0.5).double() / size
    return rank.argsort(stable=True)[:count].sort().values


def choose_held_out(data: Labels, share: float, seed: int, distinct: Tensor) -> Tensor:
    """Choose a share of each class for validation; every class keeps at least one sample.

    Args:
        data: the labels to choose from.
        share: share of each class, rounded to whole samples.
        seed: seed of the choice.
        distinct: (N,) bool, the samples to choose from: one of each group of duplicates.

    Returns:
        Their indices, sorted.

    Raises:
        UserError: if the share is less than one sample in all.
    """
    chosen = []
    for shuffled in _shuffle_by_class(data, seed, "validation"):
        members = shuffled[distinct[shuffled]]
        chosen.append(members[: count_held_out(len(members), share)])
    indices = torch.cat(chosen).sort().values
    if len(indices) == 0:
        raise UserError(
            f"data.validation = {share} of the {len(data)} labels of {data.name} is not one label; "
            "use a larger share, or 0"
        )
    return indices


def count_held_out(count: int, share: float) -> int:
    """Return how many of ``count`` samples are held out: the rounded share, but never all.

    Example:
        >>> count_held_out(10, 0.25), count_held_out(1, 0.9)
        (2, 0)
    """
    return max(0, min(round(share * count), count - 1))


def _shuffle_by_class(data: Labels, seed: int, what: str) -> tuple[Tensor, ...]:
    """Return the shuffled indices of each class."""
    shuffled = torch.randperm(len(data), generator=make_generator(seed, what))
    by_class = shuffled[data.labels[shuffled].argsort(stable=True)]
    sizes = data.labels.bincount(minlength=len(data.classes)).tolist()
    return torch.split(by_class, sizes)


def _choose_by_class(
    data: Labels,
    wanted: int | str,
    seed: int,
    what: Literal["labels", "images", "target_labels"],
    available: Tensor | None = None,
    imbalance: float = 1.0,
) -> Tensor:
    samples = len(data) if available is None else len(available)
    if imbalance == 1:
        counts = [_count_per_class(data, wanted, what, samples)] * len(data.classes)
    else:
        counts = _count_uneven(data, wanted, what, samples, imbalance)
    chosen = []
    by_class = _shuffle_by_class(data, seed, what)
    for name, each, shuffled in zip(data.classes, counts, by_class, strict=True):
        members = shuffled if available is None else shuffled[torch.isin(shuffled, available)]
        if len(members) < each and isinstance(wanted, int):
            raise UserError(
                f"data.{what} = {wanted} asks for {each} of class {name!r}, "
                f"but {data.name} has {len(members)}"
            )
        chosen.append(members[:each])
    return torch.cat(chosen).sort().values


def parse_share(text: str) -> Fraction:
    """Parse a share such as ``"2.5%"``; it must lie strictly between 0 and 1.

    Example:
        >>> parse_share("2.5%")
        Fraction(1, 40)
    """
    number = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?%", text)
    share = Fraction(number[1]) / 100 if number else Fraction(0)
    if not 0 < share < 1:
        raise ValueError("use a number, a share between '0%' and '100%' such as '10%', or 'all'")
    return share


def _count_per_class(data: Labels, wanted: int | str, what: str, samples: int) -> int:
    classes = len(data.classes)
    if isinstance(wanted, str):
        return _divide(wanted, what, samples, classes)
    each, rest = divmod(wanted, classes)
    if rest or each == 0:
        raise UserError(
            f"data.{what} = {wanted} cannot be balanced over the {classes} classes of "
            f"{data.name}; use a multiple of {classes}"
        )
    return each


def _divide(share: str, what: str, samples: int, classes: int) -> int:
    """Divide a share of the samples among the classes: how many each gets, at least one."""
    each = math.floor(samples * parse_share(share) / classes)
    if each == 0:
        raise UserError(
            f"data.{what} = {share!r} of {samples:,} images is less than one for each of the "
            f"{classes} classes; use a larger share"
        )
    return each


def _weigh_classes(classes: int, imbalance: float) -> list[float]:
    return [float(imbalance ** (-label / (classes - 1))) for label in range(classes)]


def _count_uneven(
    data: Labels, wanted: int | str, what: str, samples: int, imbalance: float
) -> list[int]:
    """Numbers of the classes with the wanted sum: rounded down, the largest remainders up."""
    total = wanted if isinstance(wanted, int) else math.floor(samples * parse_share(wanted))
    weights = _weigh_classes(len(data.classes), imbalance)
    exact = [total * weight / sum(weights) for weight in weights]
    counts = [math.floor(number + 1e-9) for number in exact]
    rest = sorted(range(len(counts)), key=lambda label: counts[label] - exact[label])
    for label in rest[: total - sum(counts)]:
        counts[label] += 1
    if min(counts) == 0:
        raise UserError(
            f"data.{what} = {wanted} with data.imbalance = {imbalance:g} leaves none for class "
            f"{data.classes[counts.index(0)]!r} of {data.name}; use more {what}, or less imbalance"
        )
    return counts


def prefer_unlabeled(indices: Tensor, labels: Tensor) -> Tensor:
    """Return the samples without a label; if all have one, all of them.

    Args:
        indices: (n,) int64, the samples that unsupervised terms may use.
        labels: (N,) int64, −1 where unknown to the run.

    Example:
        >>> labels = torch.tensor([0, 1, -1, -1])
        >>> prefer_unlabeled(torch.arange(3), labels), prefer_unlabeled(torch.arange(2), labels)
        (tensor([2]), tensor([0, 1]))
    """
    unlabeled = indices[labels[indices] < 0]
    return unlabeled if len(unlabeled) else indices


def write_manifest(path: Path, data: Labels, labeled: Tensor, seed: int) -> None:
    """Write which samples of which data are labeled, for ``data.split`` of a recipe.

    Args:
        path: JSON file to write.
        data: the data set.
        labeled: (n,) int64, indices of the labeled samples.
        seed: seed of the choice, for information.
    """
    manifest = {
        "data": data.name,
        "images": len(data),
        "sha256": data.fingerprint(),
        "seed": seed,
        "per_class": {
            name: int((data.labels[labeled] == label).sum())
            for label, name in enumerate(data.classes)
        },
        "labeled": labeled.tolist(),
    }
    path.write_text(json.dumps(manifest, indent=1) + "\n")


def read_manifest(path: Path, data: Labels) -> Tensor:
    """Read the labeled indices of a manifest.

    Raises:
        UserError: if it belongs to other data or is damaged.
    """
    manifest = _read_json(path)
    if manifest["sha256"] != data.fingerprint():
        raise UserError(
            f"{path}: belongs to {manifest['data']!r} with {manifest['images']} images and other "
            f"content than the {len(data):,} images of {data.name!r} found now"
        )
    labeled, allowed = manifest["labeled"], range(len(data))
    if (
        not isinstance(labeled, list)
        or not labeled
        or not all(type(index) is int and index in allowed for index in labeled)
        or len(set(labeled)) < len(labeled)
    ):
        raise UserError(
            f"{path}: 'labeled' must be a list of different indices below {len(data):,}"
        )
    return torch.tensor(labeled)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads(path.read_text())
        return {key: manifest[key] for key in ("data", "images", "sha256", "labeled")}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{path}: not a readable split manifest ({error!r})") from error
