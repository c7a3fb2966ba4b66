"""Exporting a trained network to one file that works without the run."""

from dualstudent.export.exporter import Export, export_run
from dualstudent.export.formats import FORMATS, load_exported
from dualstudent.export.model import DeployedModel, ModelCard

__all__ = ["FORMATS", "DeployedModel", "Export", "ModelCard", "export_run", "load_exported"]
