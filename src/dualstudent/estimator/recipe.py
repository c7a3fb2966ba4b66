"""The recipe of the estimator: its parameters, and for the others values that suit its data."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from dualstudent.data.prepared import PreparedData
from dualstudent.data.samples import ImageSamples
from dualstudent.data.transforms.color_cue import color_matters
from dualstudent.data.transforms.symmetry import may_be_mirrored
from dualstudent.errors import UserError
from dualstudent.methods import list_settings
from dualstudent.recipes.chooser import (
    ImageFacts,
    can_align,
    choose_recipe,
    has_batch_norm,
    suit_method,
    uses_strong_views,
)
from dualstudent.recipes.reading import merge, validate
from dualstudent.recipes.schema import DeviceSettings, Recipe
from dualstudent.settings import Table

# For feature vectors.
_METHOD, _EPOCHS = "dual-student", 100
_RAMPUP = 0.1  # share of the epochs in which the unsupervised losses are ramped up


def build_recipe(parameters: Mapping[str, Any], data: PreparedData, seed: int) -> Recipe:
    """Build the recipe of an estimator for its data.

    Args:
        parameters: of the estimator, by name; "auto" is replaced by what suits the data.
        data: to train on; the views of images are not made yet.
        seed: of the training.

    Raises:
        UserError: if a setting is wrong; names it.
    """
    given = {key: _to_python(value) for key, value in parameters.items()}
    wanted = _list_wanted(given, data)
    table = (
        _choose_for_images(wanted, data.train, data, seed)
        if isinstance(data.train, ImageSamples)
        else _choose_for_vectors(wanted, data)
    )
    return validate(table | {"seed": seed, "data": {}}, "of DualStudentClassifier")


def _list_wanted(given: Mapping[str, Any], data: PreparedData) -> Table:
    """Return what the user set as a table of a recipe, without what is left to be chosen."""
    sections = {
        "network": {"name": given["network"]} | (given["network_settings"] or {}),
        "method": {"name": given["method"]} | (given["method_settings"] or {}),
        "optimizer": {key: given[key] for key in ("learning_rate", "weight_decay")},
        "schedule": {"epochs": given["epochs"]},
    }
    if data.is_target is not None and has_batch_norm(sections["network"]):
        sections["network"] = {"batch_norm": "by-domain"} | sections["network"]
    if isinstance(data.train, ImageSamples):
        weak = {key: given[key] for key in ("translate", "flip", "noise")}
        sections["transforms"] = {"weak": weak, "strong": {"flip": given["flip"]}}
    if (pretrained := given["pretrained"]) is not None:
        sections["trunk"] = {"name": pretrained} if isinstance(pretrained, str) else pretrained
    return _leave_out_auto(sections) | {
        "batch": _choose_batch(given["batch_size"], given["labeled_batch"], data),
        "device": {"accelerator": given["device"]},
    }


def _leave_out_auto(table: Table) -> Table:
    return {
        key: _leave_out_auto(value) if isinstance(value, dict) else value
        for key, value in table.items()
        if not (isinstance(value, str) and value == "auto")
    }


def _choose_for_images(wanted: Table, images: ImageSamples, data: PreparedData, seed: int) -> Table:
    """Choose as ``dualstudent train --data`` does."""
    channels, *sides = images.shape
    known = images.pixels[data.labeled], data.labels[data.labeled]
    device = DeviceSettings.model_construct(**wanted["device"])  # it is validated with all else
    facts = ImageFacts(
        channels,
        min(sides),
        labeled=len(data.labeled),
        unlabeled=0 if data.fully_labeled else len(data.unlabeled),
        may_be_mirrored=may_be_mirrored(*known),
        gpu=device.gpu,
        on_features="trunk" in wanted,
        shares=_find_shares(wanted, images, data, seed),
        adapts=data.is_target is not None,
        color_matters=color_matters(*known),
    )
    return choose_recipe(facts, wanted).table


def _find_shares(
    wanted: Table, images: ImageSamples, data: PreparedData, seed: int
) -> tuple[float, ...] | None:
    """The shares of the classes among the unlabeled images, where they are of use."""
    if "trunk" in wanted or data.is_target is not None or not can_align(wanted):
        return None
    from dualstudent.trunks.shares import estimate_image_shares  # noqa: PLC0415  takes long

    found = estimate_image_shares(images.read_pixels, data.labels, len(data.classes), seed)
    return found.trusted if found else None


def _choose_for_vectors(wanted: Table, data: PreparedData) -> Table:
    """Choose the published settings, except those that do not suit short trainings on vectors."""
    if "trunk" in wanted:
        raise UserError(
            f"pretrained = {wanted['trunk'].get('name')!r} is for images; X holds feature vectors"
        )
    name = str(wanted["method"].get("name", _METHOD))
    if uses_strong_views(name):
        raise UserError(
            f"method = {name!r} learns from strong views, which need images; X holds feature "
            "vectors"
        )
    epochs, classes = wanted["schedule"].get("epochs", _EPOCHS), len(data.classes)
    method: Table = {"name": name} | suit_method(name, epochs, data.train.shape)
    if "stabilization_weight" in list_settings(name):
        # Chosen on validation parts of small tables; the losses are means over the classes.
        method |= {"consistency_weight": 3.0 * classes, "stabilization_weight": 30.0 * classes}
    chosen = {
        "network": {"name": "mlp"},
        "method": method,
        "optimizer": {"learning_rate": 0.1, "weight_decay": 1e-4},
        "schedule": {"epochs": epochs, "rampup_epochs": _RAMPUP * epochs},
    }
    return merge(chosen, wanted)


def _choose_batch(size: int, labeled: int, data: PreparedData) -> dict[str, int]:
    """The wanted batch size, or less if there are fewer samples."""
    if data.fully_labeled:
        size = labeled = min(size, len(data.labels))
        return {"size": size, "labeled": labeled}
    if labeled >= size:
        raise UserError(
            f"labeled_batch = {labeled} leaves no room for unlabeled samples in batch_size = {size}"
        )
    rest = min(size - labeled, len(data.unlabeled))
    labeled = min(labeled, len(data.labeled))
    return {"size": labeled + rest, "labeled": labeled}


def _to_python(value: Any) -> Any:
    """Convert NumPy numbers, which parameter searches use, to Python numbers."""
    if isinstance(value, Mapping):
        return {key: _to_python(inner) for key, inner in value.items()}
    return value.item() if isinstance(value, np.generic) else value
