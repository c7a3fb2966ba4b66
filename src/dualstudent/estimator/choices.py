"""What the estimator chooses for data in memory where its user did not: a recipe."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dualstudent.data.prepared import PreparedData
from dualstudent.errors import UserError
from dualstudent.methods import METHODS
from dualstudent.recipes.reading import validate
from dualstudent.recipes.schema import Recipe

_RAMPUP = 0.1  # share of the epochs until students fully listen to each other


def build_recipe(parameters: Mapping[str, Any], data: PreparedData, seed: int) -> Recipe:
    """The recipe of an estimator for its data.

    Args:
        parameters: of the estimator, by name.
        data: to learn from.
        seed: of the training.

    Raises:
        UserError: names the setting that is wrong.
    """
    given = {key: _plain(value) for key, value in parameters.items()}
    network = _network(given["network"], given["network_settings"], data.train.shape)
    table = {
        "seed": seed,
        "data": {},
        "network": network,
        "method": _method(given, data.train.shape, len(data.classes), network),
        "batch": _batch(given["batch_size"], given["labeled_batch"], data),
        "optimizer": {key: given[key] for key in ("learning_rate", "weight_decay")},
        "schedule": {"epochs": given["epochs"], "rampup_epochs": _RAMPUP * given["epochs"]},
        "device": {"accelerator": given["device"]},
    }
    return validate(table, "of DualStudentClassifier")


def _network(name: str, settings: dict[str, Any] | None, shape: tuple[int, ...]) -> dict[str, Any]:
    if name == "auto":
        name = "mlp" if len(shape) == 1 else _image_network(*shape)
    return {"name": name} | (settings or {})


def _image_network(channels: int, height: int, width: int) -> str:
    """The small network for what looks like digits, the 13-layer CNN for all else."""
    return "digits-cnn" if channels == 1 or min(height, width) < 16 else "cnn13"


def _method(
    given: Mapping[str, Any], shape: tuple[int, ...], classes: int, network: dict[str, Any]
) -> dict[str, Any]:
    """The published settings but for those that belong to long trainings or to certain images."""
    name, epochs = given["method"], given["epochs"]
    chosen: dict[str, Any] = {
        "classification_average": "labeled",  # few labels must not drown in a batch
        "average_from": max(1, 3 * epochs // 4),
        "average_every": 1,
        "strong_network": _stronger(network),
    }
    fields = _fields_of(name)
    if len(shape) == 1:
        # The features of an MLP, unlike those of a CNN, are no means over a map: their squared
        # distances are a hundred times as large.
        chosen["neighbor_weight"] = 0.004
    if len(shape) == 1 and "stabilization_weight" in fields:
        # Chosen on validation parts of small tables. Distances are averaged over the classes.
        chosen |= {"consistency_weight": 3.0 * classes, "stabilization_weight": 30.0 * classes}
    if name == "vat":
        chosen["epsilon"] = 8 * math.sqrt(math.prod(shape) / 3072)  # 8 is that of CIFAR-10
    return {key: value for key, value in chosen.items() if key in fields} | {
        "name": name,
        **(given["method_settings"] or {}),
    }


def _fields_of(method: str) -> set[str]:
    """What can be set of a method; nothing if there is none of this name."""
    for kind in METHODS:
        if kind.Settings.model_fields["name"].default == method:
            return set(kind.Settings.model_fields)
    return set()


def _stronger(network: dict[str, Any]) -> dict[str, Any]:
    """For Imbalanced Student: what stands beside ``network``."""
    return {"name": "mlp", "hidden": [256, 128]} if network["name"] == "mlp" else {"name": "cnn13"}


def _batch(size: int, labeled: int, data: PreparedData) -> dict[str, int]:
    """The wanted composition, or what there are samples for."""
    if data.everything_labeled:
        size = labeled = min(size, len(data.labels))
        return {"size": size, "labeled": labeled}
    if labeled >= size:
        raise UserError(
            f"labeled_batch = {labeled} leaves no room for unlabeled samples in batch_size = {size}"
        )
    rest = min(size - labeled, len(data.unlabeled))
    labeled = min(labeled, len(data.labeled))
    return {"size": labeled + rest, "labeled": labeled}


def _plain(value: Any) -> Any:
    """A number as Python has it: searches over parameters hand over those of NumPy."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return value.item() if isinstance(value, np.generic) else value
