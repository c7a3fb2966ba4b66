"""A program of torch.export: runs in any Python with torch, without dualstudent."""

from pathlib import Path

import torch
from torch import Tensor

from dualstudent.export.deployed import DeployedModel
from dualstudent.export.file_format import FileFormat

CARD = "dualstudent.json"


class TorchExportFile(FileFormat):
    """Read by ``torch.export.load``; the card is the extra file ``dualstudent.json``."""

    suffix = ".pt2"

    def write(self, model: DeployedModel, path: Path) -> None:
        batch = torch.export.Dim("batch")
        program = torch.export.export(model, (model.example(),), dynamic_shapes=({0: batch},))
        for node in program.graph.nodes:  # which line of which file on this machine made it
            node.meta.pop("stack_trace", None)
        with path.open("wb") as file:  # a path would have to end in .pt2
            torch.export.save(program, file, extra_files={CARD: model.card.model_dump_json()})

    def run(self, path: Path, images: Tensor) -> Tensor:
        with path.open("rb") as file, torch.inference_mode():
            probabilities: Tensor = torch.export.load(file).module()(images)
        return probabilities
