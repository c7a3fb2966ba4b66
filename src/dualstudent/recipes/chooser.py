"""Chooses a recipe for own images, with a reason for every choice."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dualstudent.batch import count_epoch_steps
from dualstudent.data.images.check import DataCheck
from dualstudent.data.images.decoding import Channels
from dualstudent.data.prepare import OF_PUBLISHED
from dualstudent.data.splits import count_held_out, count_labeled
from dualstudent.errors import UserError
from dualstudent.recipes.reading import apply_changes, merge, read_recipe_table, validate
from dualstudent.recipes.schema import Recipe
from dualstudent.settings import Table

_NETWORKS = ("digits-cnn", "quick-cnn", "cnn13", "resnext50")  # to choose from
_STEPS = {"cpu": 2_000, "cuda": 20_000}
_SIZES = {"cpu": (32, 64), "cuda": (32, 64, 128, 224)}
_SMALLEST = 16  # pixels a side, enough for every network to choose from
_PHOTO = 128  # pixels a side from which a network for photos is chosen
_LABELED, _UNLABELED = 32, 96  # samples per batch, as in the demo
_LABELS_TO_SPARE, _VALIDATION = 10, 0.2
_FEWEST_EPOCHS, _TESTS = 2, 20


@dataclass(frozen=True)
class Choice:
    """A chosen recipe with reasons.

    Attributes:
        table: the recipe as a table, not validated yet.
        reasons: key → why it has its value.
    """

    table: Table
    reasons: dict[str, str]


def locate_images(path: Path, **others: Path | str | None) -> Table:
    """Make the section ``data`` of a recipe for a folder or table and its other settings."""
    return {"path": str(path)} | {k: str(v) for k, v in others.items() if v is not None}


def use_own_images(recipe: str, where: Table, changes: Sequence[str]) -> Recipe:
    """Load a recipe and replace its data by own images.

    Args:
        recipe: name or path.
        where: section ``data`` from :func:`locate_images`.
        changes: ``"key=value"`` each.

    Raises:
        UserError: if the recipe is invalid.
    """
    table = read_recipe_table(recipe)
    replaced = (*OF_PUBLISHED, "labels")  # these are meant for the data that the recipe names
    kept = {key: value for key, value in table.get("data", {}).items() if key not in replaced}
    return validate(apply_changes(table | {"data": kept | where}, changes), recipe)


def validate_request(where: Table, changes: Sequence[str] = ()) -> Recipe:
    """Validate the user's settings before the images are read.

    Args:
        where: section ``data`` from :func:`locate_images`.
        changes: ``"key=value"`` each.

    Returns:
        A recipe of which only data, seed and device are meaningful.

    Raises:
        UserError: if a setting is invalid.
    """
    base = merge(read_recipe_table("demo"), {"schedule": {"epochs": 1}}) | {"data": where}
    refused: list[UserError] = []
    for name in _NETWORKS:  # the network, and so its valid keys, are not chosen yet
        table = base | {"network": {"name": name}}
        try:
            return validate(apply_changes(table, changes), f"chosen for {where['path']}")
        except UserError as error:
            refused.append(error)
    raise refused[0]


def choose_form(asked: Recipe, typical: int, is_gray: bool) -> tuple[int, Channels]:
    """Choose size (pixels a side) and channels of the images, unless the user set them.

    Args:
        asked: recipe from :func:`validate_request`.
        typical: median length of the short side in pixels.
        is_gray: whether the images are known to have no color.
    """
    data = asked.data
    size = data.image_size or _choose_size(typical, asked.device.gpu == "cuda")
    return size, 1 if is_gray and "channels" not in data.model_fields_set else data.channels


def complete_recipe(
    asked: Recipe, check: DataCheck, changes: Sequence[str]
) -> tuple[Recipe, dict[str, str]]:
    """Choose a recipe that suits the images and the user's settings.

    Args:
        asked: recipe from :func:`validate_request`, with the same changes.
        check: check of the images, in the form of :func:`choose_form`.
        changes: ``"key=value"`` each; they take precedence.

    Returns:
        The recipe, and key → why it has its value.
    """
    choice = choose_recipe(check, asked.device.gpu == "cuda", apply_changes({}, changes))
    where = asked.data.model_dump(mode="json", exclude_unset=True)
    recipe = validate(merge(choice.table, {"data": where}), f"chosen for {asked.data.path}")
    return recipe, choice.reasons


def choose_recipe(check: DataCheck, cuda: bool, wanted: Mapping[str, Any] | None = None) -> Choice:
    """Choose a recipe that suits the images, this machine, and the user's settings.

    Args:
        check: check of the images, at the size of the run.
        cuda: whether a CUDA GPU is used; otherwise the recipe is small enough for a CPU.
        wanted: the user's settings as a valid recipe table.
    """
    wanted = dict(wanted or {})
    data, reasons = _choose_data(check, cuda, wanted.get("data", {}))
    held_out = sum(count_held_out(count, data["validation"]) for count in check.labeled.values())
    labeled, unlabeled = sum(check.labeled.values()) - held_out, check.unlabeled
    if data["validation"]:  # in the worst case, all copies are of held-out images
        labeled -= check.labeled_copies
        unlabeled = unlabeled and max(1, unlabeled - check.unlabeled_copies)
    given = labeled
    labeled = count_labeled(data.get("labels", "all"), given, len(check.labeled))
    unlabeled += given - labeled
    network, why_network = _choose_network(data["channels"], data["image_size"], cuda)
    batch = _choose_batch(labeled, unlabeled, wanted.get("batch", {}))
    # At least 1: training refuses a batch that cannot be filled, and says why.
    per_epoch = max(1, count_epoch_steps(labeled, unlabeled, batch["size"], batch["labeled"]))
    default = max(_FEWEST_EPOCHS, round(_STEPS["cuda" if cuda else "cpu"] / per_epoch))
    epochs = wanted.get("schedule", {}).get("epochs", default)
    reasons |= {
        "network.name": why_network,
        "method.name": "two networks teach each other; 'dualstudent methods' lists others",
        "batch.labeled": _explain_labeled(batch["labeled"], labeled),
        "batch.size": _explain_batch(batch, unlabeled),
        "schedule.epochs": f"of {per_epoch:,} steps each, {epochs * per_epoch:,} in all",
        "transforms.weak.translate": "views are shifted by up to a twelfth of the image",
        "transforms.weak.flip": "a mirrored digit or letter is another one; for photos of things "
        "--set transforms.weak.flip=true",
    }
    set_already = dict.fromkeys(_list_keys(wanted), "as you set it")
    return Choice(
        merge(_make_table(data, network, batch, epochs), wanted),
        {key: set_already.get(key, reason) for key, reason in reasons.items()},
    )


def _make_table(data: Table, network: str, batch: dict[str, int], epochs: int) -> Table:
    size, is_gray = data["image_size"], data["channels"] == 1
    return {
        "data": data,
        "transforms": {"weak": {"translate": size // 12, "noise": 0.15 if is_gray else 0.0}},
        "network": {"name": network},
        "method": {
            "name": "dual-student",
            "consistency_weight": 10,
            "stabilization_weight": 100,
            "confidence_threshold": 0.6,
            "classification_average": "labeled",
        },
        "batch": batch,
        "optimizer": {"learning_rate": 0.1},
        "schedule": {"epochs": epochs, "rampup_epochs": epochs / 4},
        "evaluation": {"every": max(1, epochs // _TESTS)},
    }


def _choose_data(
    check: DataCheck, cuda: bool, wanted: Mapping[str, Any]
) -> tuple[Table, dict[str, str]]:
    """Choose size, channels and validation share, with reasons."""
    validation, why_validation = _choose_validation(check)
    chosen = {
        "image_size": check.size,
        "channels": 1 if check.is_gray else 3,
        "validation": validation,
    }
    reasons = {
        "data.image_size": _explain_size(check.typical, check.size, cuda),
        "data.channels": f"the images are {'gray' if check.is_gray else 'in color'}",
        "data.validation": why_validation,
    }
    return chosen | dict(wanted), reasons


def _choose_size(typical: int, cuda: bool) -> int:
    """Keep small images nearly at their size; for others take the largest size up to theirs."""
    sizes = _SIZES["cuda" if cuda else "cpu"]
    if typical <= sizes[0]:
        return max(_SMALLEST, 4 * round(typical / 4))
    return max(size for size in sizes if size <= typical)


def _explain_size(typical: int, size: int, cuda: bool) -> str:
    why = f"half of the images have a short side of {typical:,} pixels or more"
    if size == _SMALLEST > typical + 2:
        return f"{why}; {size} is the least"
    if size == _SIZES["cuda" if cuda else "cpu"][-1] < typical:
        return (
            f"{why}; {size} is the most that is chosen {'' if cuda else 'without a GPU'}".rstrip()
        )
    return why


def _choose_network(channels: int, size: int, cuda: bool) -> tuple[str, str]:
    if channels == 1 and size <= _SIZES["cpu"][0]:
        return "digits-cnn", "for small gray images"
    if not cuda:
        return "quick-cnn", "made for machines without a GPU"
    if size >= _PHOTO:
        return "resnext50", f"for photos of {_PHOTO} pixels or more, on a GPU"
    return "cnn13", "the paper's network for small images, on a GPU"


def _choose_validation(check: DataCheck) -> tuple[float, str]:
    """Choose the share of labels to hold out, with a reason."""
    labels, classes = sum(check.labeled.values()), len(check.labeled)
    if any(check.test.values()):
        return 0.0, "there is a test part"
    if labels < _LABELS_TO_SPARE * classes:
        return 0.0, (
            f"{labels} labels for {classes} classes are too few to spare any (fewer than "
            f"{_LABELS_TO_SPARE} a class on average), so the model is not evaluated"
        )
    return _VALIDATION, "there is no test part; this share of the labels is the validation part"


def _choose_batch(labeled: int, unlabeled: int, wanted: Mapping[str, int]) -> dict[str, int]:
    """Choose the composition of a batch."""
    if not unlabeled:
        default = max(2, min(_LABELED + _UNLABELED, labeled))
        size = wanted.get("size", wanted.get("labeled", default))
        return {"size": size, "labeled": size}
    share = wanted.get("size", _LABELED + _UNLABELED) * _LABELED // (_LABELED + _UNLABELED)
    known = wanted.get("labeled", max(1, min(_LABELED, share, labeled)))
    size = wanted.get("size", known + min(_UNLABELED, unlabeled))
    return {"size": size, "labeled": known}


def _explain_labeled(each: int, labels: int) -> str:
    every = f"all {labels:,} labels to train with, in every batch"
    return every if each == labels else f"of {labels:,} labels to train with"


def _explain_batch(batch: Mapping[str, int], unlabeled: int) -> str:
    if not unlabeled:
        return "there are no unlabeled images"
    rest = batch["size"] - batch["labeled"]
    return f"the other {rest} are {'all' if rest == unlabeled else 'of'} {unlabeled:,} unlabeled"


def _list_keys(table: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in table.items():
        yield prefix + key
        if isinstance(value, Mapping):
            yield from _list_keys(value, f"{prefix}{key}.")
