"""The recipe of the estimator: its parameters, and defaults that suit its data."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dualstudent.data.prepared import PreparedData
from dualstudent.errors import UserError
from dualstudent.methods import list_settings
from dualstudent.recipes.reading import validate
from dualstudent.recipes.schema import Recipe

_RAMPUP = 0.1  # share of the epochs in which the unsupervised losses are ramped up
# With the published 100 and 75, which belong to long ramps, short trainings on vectors can end with
# one class for all: accuracy on iris, 3 seeds, 0.33 to 0.71; with these 0.83 to 0.91.
_SHORT_WEIGHTS = {"ict": 10.0, "mixmatch": 1.0}


def build_recipe(parameters: Mapping[str, Any], data: PreparedData, seed: int) -> Recipe:
    """Build the recipe of an estimator for its data.

    Args:
        parameters: of the estimator, by name.
        data: to train on.
        seed: of the training.

    Raises:
        UserError: if a setting is wrong; names it.
    """
    given = {key: _to_python(value) for key, value in parameters.items()}
    network = _choose_network(given["network"], given["network_settings"], data.train.shape)
    table = {
        "seed": seed,
        "data": {},
        "network": network,
        "method": _choose_method(given, data.train.shape, len(data.classes), network),
        "batch": _choose_batch(given["batch_size"], given["labeled_batch"], data),
        "optimizer": {key: given[key] for key in ("learning_rate", "weight_decay")},
        "schedule": {"epochs": given["epochs"], "rampup_epochs": _RAMPUP * given["epochs"]},
        "device": {"accelerator": given["device"]},
    }
    return validate(table, "of DualStudentClassifier")


def _choose_network(
    name: str, settings: dict[str, Any] | None, shape: tuple[int, ...]
) -> dict[str, Any]:
    if name == "auto":
        name = "mlp" if len(shape) == 1 else _choose_image_network(*shape)
    return {"name": name} | (settings or {})


def _choose_image_network(channels: int, height: int, width: int) -> str:
    """The small network for gray or small images, the 13-layer CNN for others."""
    return "digits-cnn" if channels == 1 or min(height, width) < 16 else "cnn13"


def _choose_method(
    given: Mapping[str, Any], shape: tuple[int, ...], classes: int, network: dict[str, Any]
) -> dict[str, Any]:
    """The published settings, except those that suit only long trainings or certain images."""
    name, epochs = given["method"], given["epochs"]
    chosen: dict[str, Any] = {
        "classification_average": "labeled",  # so that a few labels have enough weight in a batch
        "average_from": max(1, 3 * epochs // 4),
        "average_every": 1,
        "strong_network": _choose_strong_network(network),
    }
    fields = list_settings(name)
    if len(shape) == 1 and "stabilization_weight" in fields:
        # Chosen on validation parts of small tables; the losses are means over the classes.
        chosen |= {"consistency_weight": 3.0 * classes, "stabilization_weight": 30.0 * classes}
    if name in _SHORT_WEIGHTS:
        chosen["consistency_weight"] = _SHORT_WEIGHTS[name]
    if name == "vat":
        chosen["epsilon"] = 8 * math.sqrt(math.prod(shape) / 3072)  # 8 for CIFAR-10
    return {key: value for key, value in chosen.items() if key in fields} | {
        "name": name,
        **(given["method_settings"] or {}),
    }


def _choose_strong_network(network: dict[str, Any]) -> dict[str, Any]:
    """The second, stronger network of Imbalanced Student."""
    return {"name": "mlp", "hidden": [256, 128]} if network["name"] == "mlp" else {"name": "cnn13"}


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
