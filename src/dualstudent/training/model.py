"""The trained networks of a finished run."""

import dataclasses
from typing import Any

from dualstudent.data.prepare import PreparedData
from dualstudent.errors import UserError
from dualstudent.recipes.schema import DeviceSettings
from dualstudent.training.checkpoint import read_tensors
from dualstudent.training.run import Run
from dualstudent.training.training import Training


def load_trained(
    run: Run, data: PreparedData | None = None, device: DeviceSettings | None = None
) -> Training:
    """The training of a finished run, its networks as they were at the end.

    Args:
        run: a finished one.
        data: what :func:`~dualstudent.train` was handed, if it was.
        device: to compute on; default: that of the recipe, by this process alone.

    Raises:
        UserError: if the run has not finished, or its weights or data belong to another.
    """
    run.read_result()  # refuses a run that has not finished
    if data is not None:
        run.check_same_data(data)
    recipe = run.read_recipe()
    device = device or recipe.device.model_copy(update={"processes": 1})
    training = Training(recipe.model_copy(update={"device": device}), data)
    tensors, _ = read_tensors(run.model)
    for name, network in training.method.evaluated.items():
        prefix = f"{name}."
        weights = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        try:
            network.load_state_dict(weights)
        except RuntimeError as error:
            raise UserError(f"{run.model}: does not fit the network of {run.recipe}") from error
    return training


def evaluate_run(run: Run, data: PreparedData | None = None) -> dict[str, dict[str, Any]]:
    """Name → figures on the test set, for every network of a finished run."""
    training = load_trained(run, data)
    if len(training.data.test_labels) == 0:
        raise UserError(f"{run.folder}: was trained without a test set; there is nothing to test")
    figures = training.evaluator.evaluate(training.method.evaluated).networks
    return {name: dataclasses.asdict(each) for name, each in figures.items()}
