"""The trained networks of a finished run."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from dualstudent.data.prepared import PreparedData
from dualstudent.errors import UserError
from dualstudent.methods import Method
from dualstudent.networks.build import count_parameters
from dualstudent.recipes.schema import DeviceSettings
from dualstudent.training.model_file import read_model
from dualstudent.training.run import Run
from dualstudent.training.trainer import Trainer
from dualstudent.training.trunk import describe_trunk


def load_trained(
    run: Run, data: PreparedData | None = None, device: DeviceSettings | None = None
) -> Trainer:
    """Load a finished run: a trainer with the final weights.

    Args:
        run: a finished run.
        data: the data that :func:`~dualstudent.train` was given, if any.
        device: device to use; default: that of the recipe, with a single process.

    Raises:
        UserError: if the run has not finished, or its weights or data have changed.
    """
    run.read_result()  # raises if the run has not finished
    recipe = run.read_recipe()
    device = device or recipe.device.one_process
    here = recipe.model_copy(update={"device": device})
    tensors, notes = read_model(run)

    def check(found: PreparedData) -> None:
        if data is not None or recipe.data.path is not None:  # these may have changed
            run.check_same_data(found)
        if (notes.classes, notes.shape) != (tuple(found.classes), tuple(found.train.shape)):
            raise UserError(f"{run.model}: is for other classes or shapes than the data have")
        if notes.trunk != describe_trunk(found.train):
            raise UserError(
                f"{run.folder}: was trained on features of a trunk with other weights; restore "
                "them, or train again"
            )
        check_networks(run, found, tensors)

    trainer = Trainer(here, data, check, stage=-1)
    load_weights(run, trainer.method, tensors)
    return trainer


def check_networks(run: Run, data: PreparedData, tensors: Mapping[str, Tensor]) -> None:
    """Check that the networks of a run are no larger than its weights, before they take memory.

    Raises:
        UserError: otherwise.
    """
    recipe, given = run.read_recipe().split_stages()[-1], sum(t.numel() for t in tensors.values())
    channels, *size = data.train.shape
    for settings in recipe.method.networks(recipe.network):
        wanted = count_parameters(settings, channels, len(data.classes), min(size, default=None))
        if wanted > given:
            raise UserError(f"{run.model}: does not fit the network of {run.recipe}")


def load_weights(run: Run, method: Method, tensors: Mapping[str, Tensor]) -> None:
    """Load the weights of a run into all networks that ``method`` evaluates.

    Raises:
        UserError: if they do not fit.
    """
    for name, network in method.evaluated.items():
        prefix = f"{name}."
        weights = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        try:
            network.load_state_dict(weights)
        except RuntimeError as error:
            raise UserError(f"{run.model}: does not fit the network of {run.recipe}") from error


def evaluate_run(run: Run, data: PreparedData | None = None) -> dict[str, dict[str, Any]]:
    """Evaluate a finished run again on its test or validation part: name → figures.

    Raises:
        UserError: if it has neither part.
    """
    trainer = load_trained(run, data)
    if len(trainer.data.test_labels) == 0:
        raise UserError(
            f"{run.folder}: has neither a test part nor a validation part to be evaluated on"
        )
    figures = trainer.evaluator.evaluate(trainer.method.evaluated).networks
    return {name: dataclasses.asdict(each) for name, each in figures.items()}
