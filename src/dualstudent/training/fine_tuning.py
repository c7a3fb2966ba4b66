"""Fine-tuning from a run on the features of a trunk: its trunk and its head become one network."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from dualstudent.data.features import Standardization
from dualstudent.errors import UserError
from dualstudent.networks.efficientnet_lite import (
    EfficientNetLite,
    EfficientNetLiteSettings,
    find_run,
)
from dualstudent.networks.mlp import MLPSettings
from dualstudent.networks.network import Network, NetworkSettings
from dualstudent.training.model_file import ModelNotes, find_scale, read_model
from dualstudent.training.run import Run
from dualstudent.trunks.trunk import TrunkSettings, hash_trunk

_HEADS = ("classify", "follow")


def load_start(student: Network, number: int, classes: Sequence[str]) -> None:
    """Set the weights that a student starts with, if its settings name any.

    Args:
        student: keeps its initial state otherwise.
        number: of the student, from 0.
        classes: class names of the data.

    Raises:
        UserError: if they are missing or do not fit.
    """
    if isinstance(student, EfficientNetLite) and (folder := find_run(student.weights)) is not None:
        start_from_run(student, number, Run.open(folder).used, classes)
    else:
        student.load_pretrained()


def start_from_labels(network: NetworkSettings) -> NetworkSettings | None:
    """Return the settings of a network that has learned from labels alone before training.

    A run that it starts from is replaced by the one on labels alone beside it; None if that run
    has none, as its heads may have learned from unlabeled images.
    """
    if not isinstance(network, EfficientNetLiteSettings):
        return network
    folder = find_run(network.weights)
    if folder is None:
        return network
    alone = Run(folder).labels_only
    if not alone.result.is_file():
        return None
    return network.model_copy(update={"weights": str(alone.folder)})


def start_from_run(
    student: EfficientNetLite, number: int, run: Run, classes: Sequence[str]
) -> None:
    """Start a student with trunk and heads of a finished run, so that both predict the same.

    The standardization of the features becomes a part of the heads:

        W (f − μ) / σ + b = (W / σ) f + (b − (W / σ) μ)

    Student 0 gets the heads of the network that the run exports. Other students get those of the
    student of their number; if there is none, the class head of the former, and keep their own
    consistency head, as no two students may be equal.

    Args:
        student: changed in place.
        number: of the student, from 0.
        run: a run on the features of the same trunk, without hidden layers.
        classes: class names of the data.

    Raises:
        UserError: if the run does not fit.
    """
    tensors, notes = read_model(run)
    trunk = _check_fits(run, notes, student, classes)
    student.load_trunk(trunk.weights)
    if notes.trunk is None or hash_trunk(student) != notes.trunk.weights:
        raise UserError(
            f"network.weights: {run.folder} was trained with other weights of {trunk.name}, or on "
            f"images with other channels; restore trunk.weights = {trunk.weights!r}"
        )
    own, scale = f"student{number + 1}", find_scale(run, tensors)
    has_own = number > 0 and f"{own}.heads.follow.bias" in tensors
    name = own if has_own else notes.exported
    heads = _HEADS if has_own or number == 0 else _HEADS[:1]
    try:
        for head in heads:
            folded = _fold(tensors, f"{name}.heads.{head}", scale)
            student.heads.get_submodule(head).load_state_dict(folded)
    except (KeyError, RuntimeError) as error:
        raise UserError(f"{run.model}: does not fit the network of {run.recipe}") from error


def _fold(tensors: Mapping[str, Tensor], head: str, scale: Standardization) -> dict[str, Tensor]:
    """Fold the standardization of the features into a linear head."""
    weight = tensors[f"{head}.weight"].double() / torch.from_numpy(scale.std)
    bias = tensors[f"{head}.bias"].double() - weight @ torch.from_numpy(scale.mean)
    return {"weight": weight.float(), "bias": bias.float()}


def _check_fits(
    run: Run, notes: ModelNotes, student: EfficientNetLite, classes: Sequence[str]
) -> TrunkSettings:
    """Return the trunk of a run after its recipe and classes were checked."""
    recipe, wanted = run.read_recipe(), student.Settings.model_fields["name"].default
    trunk, heads = recipe.trunk, recipe.network
    if trunk is None or trunk.name != wanted or trunk.weights == "random":
        found = f"the trunk {trunk.name}, weights {trunk.weights!r}" if trunk else "no trunk"
        raise UserError(
            f"network.weights: {run.folder} has {found}; name a run on features of {wanted!r}, "
            "pretrained"
        )
    if not isinstance(heads, MLPSettings) or heads.hidden:
        raise UserError(
            f"network.weights: the heads of {run.folder} have hidden layers, those of {wanted!r} "
            "have none; name a run with network.hidden = []"
        )
    if notes.classes != tuple(classes):
        raise UserError(
            f"network.weights: {run.folder} was trained for other classes than the data have; name "
            "a run for the same ones"
        )
    return trunk
