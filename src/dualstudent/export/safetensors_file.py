"""Plain weights with the card beside them, for those who have dualstudent but not the run."""

import json
from pathlib import Path

import torch
from pydantic import ValidationError
from torch import Tensor

from dualstudent.errors import UserError
from dualstudent.export.card import ModelCard
from dualstudent.export.deployed import DeployedModel
from dualstudent.export.file_format import FileFormat
from dualstudent.training.checkpoint import read_tensors, write_tensors


class SafetensorsFile(FileFormat):
    """Read by :func:`load_exported`, or by anything that reads safetensors."""

    suffix = ".safetensors"

    def write(self, model: DeployedModel, path: Path) -> None:
        write_tensors(path, model.state_dict(), model.card.model_dump(mode="json"))

    def run(self, path: Path, images: Tensor) -> Tensor:
        with torch.inference_mode():
            probabilities: Tensor = load_exported(path)(images)
        return probabilities


def load_exported(path: Path | str) -> DeployedModel:
    """The model of a file that ``dualstudent export --to safetensors`` wrote; needs no run.

    Raises:
        UserError: if the file is another one, or of another version.
    """
    path = Path(path)
    tensors, notes = read_tensors(path)
    try:
        card = ModelCard.model_validate_json(json.dumps(notes))
        model = DeployedModel(card)
        model.load_state_dict(tensors)
    except (ValidationError, RuntimeError) as error:
        raise UserError(
            f"{path}: is not a model exported by this version of dualstudent; "
            "export it again from its run"
        ) from error
    return model
