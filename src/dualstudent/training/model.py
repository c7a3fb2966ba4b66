"""The trained networks of a finished run."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from torch import Tensor

from dualstudent.data.prepared import PreparedData
from dualstudent.errors import UserError
from dualstudent.methods import Method
from dualstudent.recipes.schema import DeviceSettings
from dualstudent.settings import Settings
from dualstudent.training.checkpoint import read_tensors
from dualstudent.training.run import Run
from dualstudent.training.trainer import Trainer


class ModelNotes(Settings):
    """What stands beside the weights of a finished run.

    Attributes:
        classes: their names, in the order of the probabilities.
        exported: name of the network that its method takes away for use.
        shape: of a sample.
        data: fingerprint of what the run saw; older runs kept none.
    """

    classes: tuple[str, ...]
    exported: str
    shape: tuple[int, ...]
    data: str | None = None


def read_model(run: Run) -> tuple[dict[str, Tensor], ModelNotes]:
    """All weights of a finished run, and what stands beside them.

    Raises:
        UserError: if its file is broken, or not one that a run of this version leaves.
    """
    tensors, notes = read_tensors(run.model)
    try:
        known = ModelNotes.model_validate_json(json.dumps(notes))
    except ValidationError as error:
        raise UserError(
            f"{run.model}: is not the model of a run of this version of dualstudent; "
            "bring it back, or train again"
        ) from error
    if known.data not in (None, run.read_fingerprint()):
        raise UserError(f"{run.model}: is of another run, on other data; bring its own back")
    return tensors, known


def load_trained(
    run: Run, data: PreparedData | None = None, device: DeviceSettings | None = None
) -> Trainer:
    """The training of a finished run, its networks as they were at the end.

    Args:
        run: a finished one.
        data: what :func:`~dualstudent.train` was handed, if it was.
        device: to compute on; default: that of the recipe, by this process alone.

    Raises:
        UserError: if the run has not finished, or its weights or data belong to another.
    """
    run.read_result()  # refuses a run that has not finished
    recipe = run.read_recipe()
    device = device or recipe.device.model_copy(update={"processes": 1})
    here = recipe.model_copy(update={"device": device})
    if data is not None or recipe.data.path is not None:  # these are changed at will
        trainer = Trainer(here, data, run.check_same_data)
    else:
        trainer = Trainer(here)
    trainer.enter_stage(-1)
    tensors, _ = read_model(run)
    load_weights(run, trainer.method, tensors)
    return trainer


def load_weights(run: Run, method: Method, tensors: Mapping[str, Tensor]) -> None:
    """Bring all networks that ``method`` evaluates to where the run left them."""
    for name, network in method.evaluated.items():
        prefix = f"{name}."
        weights = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        try:
            network.load_state_dict(weights)
        except RuntimeError as error:
            raise UserError(f"{run.model}: does not fit the network of {run.recipe}") from error


def evaluate_run(run: Run, data: PreparedData | None = None) -> dict[str, dict[str, Any]]:
    """Name → figures on the test or validation part, for every network of a finished run."""
    trainer = load_trained(run, data)
    if len(trainer.data.test_labels) == 0:
        raise UserError(
            f"{run.folder}: has neither a test part nor a validation part to be evaluated on"
        )
    figures = trainer.evaluator.evaluate(trainer.method.evaluated).networks
    return {name: dataclasses.asdict(each) for name, each in figures.items()}
