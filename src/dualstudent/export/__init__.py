"""Taking a trained network away: one file that is used without the run, checked when written."""

from dualstudent.export.card import ModelCard
from dualstudent.export.deployed import DeployedModel
from dualstudent.export.exporter import FORMATS, Export, export_run
from dualstudent.export.safetensors_file import load_exported

__all__ = ["FORMATS", "DeployedModel", "Export", "ModelCard", "export_run", "load_exported"]
