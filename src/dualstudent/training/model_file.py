"""The file of the trained networks of a finished run."""

import json
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, ValidationError
from torch import Tensor

from dualstudent.data.features import Standardization
from dualstudent.errors import UserError
from dualstudent.settings import Settings
from dualstudent.training.checkpoint import check_finite, read_tensors
from dualstudent.training.run import Run
from dualstudent.training.trunk import TrunkNotes, rebuild_trunk
from dualstudent.trunks.trunk import StandardizedTrunk


class ModelNotes(Settings):
    """The notes in the model file of a finished run.

    Attributes:
        classes: class names, in the order of the probabilities.
        exported: name of the exported network.
        shape: shape of a sample.
        data: fingerprint of the data; None in older runs.
        trunk: the trunk whose features the samples are; None if there is none.
    """

    classes: tuple[str, ...] = Field(min_length=1, max_length=2**20)
    exported: str
    shape: tuple[Annotated[int, Field(gt=0, lt=2**31)], ...] = Field(min_length=1, max_length=3)
    data: str | None = None
    trunk: TrunkNotes | None = None


def read_model(run: Run) -> tuple[dict[str, Tensor], ModelNotes]:
    """Read all weights of a finished run, and their notes.

    Raises:
        UserError: if the file is broken, of another version, or of another run.
    """
    tensors, notes = read_tensors(run.model)
    try:
        known = ModelNotes.model_validate_json(json.dumps(notes))
    except ValidationError as error:
        raise UserError(
            f"{run.model}: is not the model of a run of this version of dualstudent; "
            "restore it, or train again"
        ) from error
    if known.data not in (None, run.read_fingerprint()):
        raise UserError(f"{run.model}: belongs to another run with other data; restore its own")
    check_finite(run.model, tensors)
    return tensors, known


def load_trunk(run: Run) -> StandardizedTrunk | None:
    """Build the trunk of a finished run again; None if it has none.

    Raises:
        UserError: if its weights are missing, or are not those of the training.
    """
    settings, (tensors, notes) = run.read_recipe().trunk, read_model(run)
    if settings is None or notes.trunk is None:
        return None
    return rebuild_trunk(settings, notes.trunk, find_scale(run, tensors), run.folder)


def find_scale(run: Run, tensors: Mapping[str, Tensor]) -> Standardization:
    """Find the standardization of the features among the tensors of a run's model.

    Raises:
        UserError: if it is not there.
    """
    if not {"preprocessing.mean", "preprocessing.std"} <= tensors.keys():
        raise UserError(f"{run.model}: lacks the scale of the features; bring the file back")
    mean, std = (tensors[f"preprocessing.{key}"].numpy() for key in ("mean", "std"))
    return Standardization(mean, std)
