"""The recipe: everything that defines a run."""

from typing import Literal

import torch
from pydantic import Field

from dualstudent.data.batching.loader import BatchSettings
from dualstudent.data.prepare import DataSettings
from dualstudent.data.transforms.augment import Augmentation, Normalization
from dualstudent.methods import AnyMethodSettings
from dualstudent.networks.build import AnyNetworkSettings
from dualstudent.settings import Settings
from dualstudent.training.evaluation import EvaluationSettings
from dualstudent.training.schedules import ScheduleSettings


class OptimizerSettings(Settings):
    """SGD with Nesterov momentum, one optimizer per student, decay on every parameter."""

    learning_rate: float = Field(gt=0)
    momentum: float = Field(0.9, gt=0, lt=1)
    weight_decay: float = Field(1e-4, ge=0)


class DeviceSettings(Settings):
    """Where and how precisely to compute."""

    accelerator: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    processes: int = Field(
        1, gt=0, description="how many share each batch, one device each; gradients are averaged"
    )
    precision: Literal["32-true", "bf16-mixed"] = "32-true"

    @property
    def gpu(self) -> Literal["cuda", "mps"] | None:
        """The kind of GPU that computes here, if any does."""
        if self.accelerator in ("auto", "cuda") and torch.cuda.is_available():
            return "cuda"
        if self.accelerator in ("auto", "mps") and torch.backends.mps.is_available():
            return "mps"
        return None


class Recipe(Settings):
    """Everything that defines a run: the same recipe on the same machine gives the same result.

    Example:
        >>> from dualstudent import load_recipe
        >>> load_recipe("demo").method.name
        'dual-student'
    """

    description: str = ""
    seed: int = Field(0, ge=0)
    data: DataSettings
    normalization: Normalization = Normalization()
    augmentation: Augmentation = Augmentation()
    network: AnyNetworkSettings
    method: AnyMethodSettings
    batch: BatchSettings
    optimizer: OptimizerSettings
    schedule: ScheduleSettings
    evaluation: EvaluationSettings = EvaluationSettings()
    device: DeviceSettings = DeviceSettings()

    def defines_same_run_as(self, other: "Recipe") -> bool:
        """Whether both give the same result; the description does not matter."""
        return self.model_copy(update={"description": other.description}) == other
