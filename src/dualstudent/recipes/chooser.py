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
from dualstudent.methods import METHODS
from dualstudent.recipes.reading import apply_changes, merge, read_recipe_table, validate
from dualstudent.recipes.schema import Recipe
from dualstudent.settings import Table

# Networks to choose from, with their learning rates; other networks, and Dual Student, have 0.1.
_LEARNING_RATES = {"whitened-cnn": 0.2, "cnn13": 0.03, "resnext50": 0.03}
_LEARNING_RATE = 0.1
_HEADS: Table = {"name": "mlp"}  # on the features of a trunk
_METHOD = {"name": "fixmatch", "classification_average": "labeled"}
_DUAL_STUDENT = {  # if it is asked for
    "name": "dual-student",
    "consistency_weight": 10,
    "stabilization_weight": 100,
    "confidence_threshold": 0.6,
    "classification_average": "labeled",
}
_STEPS = {"cpu": 3_000, "cuda": 20_000}
_HEAD_STEPS = 1_000  # on features of a trunk, more would only fit the few labels
_SIZES = {"cpu": (32, 64), "cuda": (32, 64, 128, 224)}
_SMALLEST = 16  # pixels a side, enough for every network to choose from
_PHOTO = 128  # pixels a side from which a network for photos is chosen
_LARGE = 48  # pixels a side from which a network has one more block
_RANDAUGMENT = 2  # operations per strong view
_AFFINE = (10.0, 0.1, 0.1, 0.05)  # of strong views: degrees, log scale, shear, shift
_GENTLE_AFFINE = (15.0, 0.1, 0.15, 0.05)  # of weak views, for methods that have no strong ones
_CUTOUT = 0.5
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
    wanted = apply_changes({}, changes)
    batch = {"size": _LABELED + _UNLABELED, "labeled": _LABELED}
    refused: list[UserError] = []
    names = _LEARNING_RATES if "trunk" not in wanted else [_HEADS["name"]]
    for name in names:  # the network, and so its valid keys, are not chosen yet
        table = _make_table(where, {}, {"name": name}, batch, 1, wanted)
        try:
            return validate(table, f"chosen for {where['path']}")
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
    if data.image_size is None and asked.trunk is not None:
        size = max(_SMALLEST, min(typical, asked.trunk.image_size))
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
    if "trunk" in wanted:
        network, why_network = _HEADS, "learns from the features of the trunk"
        reasons["data.image_size"] = "no more than the trunk sees"
        reasons["trunk.name"] = "is not trained; its features are computed once and kept"
    method = _choose_method(wanted)
    views, why_views = _choose_views(check, data["image_size"], method)
    batch = _choose_batch(labeled, unlabeled, wanted.get("batch", {}))
    # At least 1: training refuses a batch that cannot be filled, and says why.
    per_epoch = max(1, count_epoch_steps(labeled, unlabeled, batch["size"], batch["labeled"]))
    steps = _HEAD_STEPS if "trunk" in wanted else _STEPS["cuda" if cuda else "cpu"]
    default = max(_FEWEST_EPOCHS, round(steps / per_epoch))
    epochs = wanted.get("schedule", {}).get("epochs", default)
    reasons |= {
        "network.name": why_network,
        "method.name": "learns from unlabeled images by their strongly changed views; "
        "'dualstudent methods' lists others",
        "batch.labeled": _explain_labeled(batch["labeled"], labeled),
        "batch.size": _explain_batch(batch, unlabeled),
        "schedule.epochs": f"of {per_epoch:,} steps each, {epochs * per_epoch:,} in all",
        **why_views,
    }
    set_already = dict.fromkeys(_list_keys(wanted), "as you set it")
    return Choice(
        _make_table(data, views, network, batch, epochs, wanted),
        {key: set_already.get(key, reason) for key, reason in reasons.items()},
    )


def _make_table(
    data: Table,
    views: Table,
    network: Table,
    batch: dict[str, int],
    epochs: int,
    wanted: Table,
) -> Table:
    """Make the recipe of what was chosen, with the user's settings."""
    chosen = {
        "data": data,
        "transforms": views,
        "network": network,
        "method": _DUAL_STUDENT if _choose_method(wanted) == "dual-student" else _METHOD,
        "batch": batch,
        "optimizer": {
            "learning_rate": _choose_learning_rate(network["name"], wanted),
            "weight_decay": 5e-4,
            "decay_norms_and_biases": False,
        },
        "schedule": _make_schedule(epochs, wanted),
        "evaluation": {"every": max(1, epochs // _TESTS)},
    }
    return merge(chosen, wanted)


def _make_schedule(epochs: int, wanted: Table) -> Table:
    schedule = {"epochs": epochs, "rampup_epochs": epochs / 4}  # for methods that have a ramp
    if _look_up(wanted, "schedule", "warmup_epochs") == 0:
        return schedule  # a recipe without warm-up does not say where it starts
    return schedule | {"warmup_epochs": min(1.0, epochs / 4), "warmup_from": 0.0}


def _choose_method(wanted: Table) -> str:
    return str(_look_up(wanted, "method", "name") or _METHOD["name"])


def _choose_learning_rate(network: str, wanted: Table) -> float:
    if _choose_method(wanted) == "dual-student":
        return _LEARNING_RATE
    name = str(_look_up(wanted, "network", "name") or network)
    return _LEARNING_RATES.get(name, _LEARNING_RATE)


def _look_up(wanted: Table, section: str, key: str) -> Any:
    """Return a setting of the user; None if there is none, or if the section is invalid."""
    table = wanted.get(section)
    return table.get(key) if isinstance(table, dict) else None


def _choose_views(check: DataCheck, size: int, method: str) -> tuple[Table, dict[str, str]]:
    """Choose weak and strong views, with reasons."""
    flip = check.may_be_mirrored
    weak: Table = {"translate": max(1, size // 14), "flip": flip}
    strong = {"flip": flip, "randaugment": _RANDAUGMENT, "affine": _AFFINE, "cutout": _CUTOUT}
    reasons = {
        "transforms.weak.translate": "weak views are shifted by up to a fourteenth of the image",
        "transforms.weak.flip": "mirror images look like their class"
        if flip
        else "mirror images may be of another class, as those of digits are",
    }
    if _uses_strong_views(method):
        reasons["transforms.strong.randaugment"] = (
            "strong views are also changed by so many random operations, turned, scaled and "
            "sheared a little, and lack a part"
        )
    else:
        weak["affine"] = _GENTLE_AFFINE
        reasons["transforms.weak.affine"] = (
            f"{method} learns from weak views, so these are also turned, scaled and sheared"
        )
    return {"weak": weak, "strong": strong}, reasons


def _uses_strong_views(name: str) -> bool:
    return any(
        "strong" in policies
        for method in METHODS
        if method.Settings.model_fields["name"].default == name
        for policies in method.views
    )


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


def _choose_network(channels: int, size: int, cuda: bool) -> tuple[Table, str]:
    if cuda and channels == 3 and size >= _PHOTO:
        return {"name": "resnext50"}, f"for photos of {_PHOTO} pixels or more, on a GPU"
    if cuda and channels == 3:
        return {"name": "cnn13"}, "the paper's network for small images, on a GPU"
    blocks = 3 if size < _LARGE else 4
    first = 16 if channels == 1 or blocks == 4 else 32
    widths = [first * 2**block for block in range(blocks)]
    return {"name": "whitened-cnn", "widths": widths}, "learns fastest on a CPU"


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
