"""The recipe: everything that defines a run."""

from typing import Literal, Self

import torch
from pydantic import Field, model_validator

from dualstudent.data.batching.loader import BatchSettings
from dualstudent.data.prepare import DataSettings
from dualstudent.data.transforms.normalization import Normalization
from dualstudent.data.transforms.policy import Transforms
from dualstudent.methods import AnyMethodSettings
from dualstudent.networks.build import AnyNetworkSettings
from dualstudent.optimization.optimizers import AnyOptimizer
from dualstudent.optimization.schedules import AnySchedule
from dualstudent.settings import Settings


class EvaluationSettings(Settings):
    """When networks are tested, and what is kept of it."""

    every: int = Field(1, ge=1, description="epochs between tests; the last epoch is always tested")
    track: int = Field(
        0, ge=0, description="of how many test samples the probability of the truth is kept"
    )


class EMASettings(Settings):
    """Test and export averages of the weights instead of the weights themselves."""

    decay: float = Field(0.999, gt=0, lt=1, description="of the exponential moving average")


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


class Stage(Settings):
    """A part of a run with a method, an optimizer or a length of its own.

    Student i begins a stage with the weights that student i had at the end of the stage before.
    Each section replaces that of the recipe as a whole.
    """

    name: str = Field(min_length=1, description="what it is called in the metrics")
    method: AnyMethodSettings | None = Field(None, description="default: that of the recipe")
    optimizer: AnyOptimizer | None = Field(None, description="default: that of the recipe")
    schedule: AnySchedule | None = Field(None, description="default: that of the recipe")


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
    transforms: Transforms = Transforms()
    network: AnyNetworkSettings
    method: AnyMethodSettings
    batch: BatchSettings
    optimizer: AnyOptimizer
    schedule: AnySchedule
    ema: EMASettings | None = None
    stages: tuple[Stage, ...] = Field(
        (), strict=False, description="what a run goes through; default: the recipe as it is"
    )
    evaluation: EvaluationSettings = EvaluationSettings()
    device: DeviceSettings = DeviceSettings()

    @model_validator(mode="after")
    def _check_last_stage(self) -> Self:
        if self.stages and self.stages[-1].method not in (None, self.method):
            raise ValueError(
                "stages: the last one has the method of the recipe; set method in the recipe"
            )
        return self

    @property
    def epochs(self) -> int:
        """Of all stages together."""
        return sum(stage.schedule.epochs for stage in self.split_stages())

    def split_stages(self) -> "list[Recipe]":
        """A recipe without stages for each stage, in order; itself if it has none."""
        if not self.stages:
            return [self]
        return [self._apply(stage) for stage in self.stages]

    def _apply(self, stage: Stage) -> "Recipe":
        own = {key: value for key, value in stage if key != "name" and value is not None}
        return self.model_copy(update=own | {"stages": ()})

    def defines_same_run_as(self, other: "Recipe") -> bool:
        """Whether both give the same result; the description does not matter."""
        return self.model_copy(update={"description": other.description}) == other
