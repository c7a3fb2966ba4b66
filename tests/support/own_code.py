"""A module of a user: networks and a method of one's own, and what can be wrong with them."""

from pathlib import Path

CODE = """
import torch
from torch import nn
from dualstudent import Method, MethodSettings, StudentLoss, as_student

class Trunk(nn.Sequential):
    def __init__(self, channels, width):
        super().__init__(nn.Conv2d(channels, width, 3), nn.BatchNorm2d(width), nn.ReLU())

def tiny(channels, classes, width=8):
    return as_student(Trunk(channels, width), width, classes)

def plain(channels, classes):
    return Trunk(channels, 8)

def of_other_features(channels, classes):
    return as_student(Trunk(channels, 8), 9, classes)

def of_other_classes(channels, classes):
    return as_student(Trunk(channels, 8), 8, classes + 1)

def for_vectors(channels, classes):
    return as_student(nn.Linear(channels, 8), 8, classes)

def fails(channels, classes):
    return 1 / 0

class MineSettings(MethodSettings):
    name: str = "mine"
    weight: float = 0.5

class Mine(Method):
    summary = "twice the labels"
    Settings = MineSettings

    def losses(self, batch, ramp):
        logits = self.students[0](batch.views[0]).class_logits
        term = self.settings.compute_classification(logits, batch.labels, "labeled")
        return [StudentLoss({"classification": self.settings.weight * term})]

class Fails(Mine):
    def losses(self, batch, ramp):
        raise RuntimeError("tried to allocate\\n  20 GiB")

no_method = 3
"""


def write_code(folder: Path, name: str) -> str:
    """Write the module into a folder; return its name."""
    (folder / f"{name}.py").write_text(CODE)
    return name
