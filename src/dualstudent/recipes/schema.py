"""The recipe: all settings of a run."""

import warnings
from typing import Literal, Self

import torch
from pydantic import Field, model_validator

from dualstudent.data.batching.loader import BatchSettings
from dualstudent.data.prepare import DataSettings
from dualstudent.data.transforms.normalization import Normalization
from dualstudent.data.transforms.policy import Transforms
from dualstudent.discovery import find_imports
from dualstudent.errors import NotKeptWarning
from dualstudent.methods import AnyMethodSettings, needs_strong_views
from dualstudent.networks.build import AnyNetworkSettings
from dualstudent.optimization.optimizers import AnyOptimizer
from dualstudent.optimization.schedules import AnySchedule
from dualstudent.settings import Settings
from dualstudent.trunks.trunk import TrunkSettings


class EvaluationSettings(Settings):
    """When networks are evaluated, and what is recorded."""

    every: int = Field(
        1, ge=1, description="epochs between evaluations; the last epoch is always evaluated"
    )
    track: int = Field(
        0, ge=0, description="record the probability of the true class for so many test samples"
    )


class EMASettings(Settings):
    """Evaluate and export exponential moving averages of the weights."""

    decay: float = Field(0.999, gt=0, lt=1, description="decay of the average per step")


class DeviceSettings(Settings):
    """Device, number of processes, and precision."""

    accelerator: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    processes: int = Field(
        1,
        gt=0,
        le=256,
        description="processes on each machine that share each batch, with one device each; "
        "torchrun and srun say it themselves",
    )
    nodes: int = Field(1, gt=0, le=1024, description="machines, if torchrun or srun start them")
    start_limit: float = Field(
        300.0, gt=0, description="seconds that processes wait for each other at the start"
    )
    sync_batch_norm: bool = Field(
        False,
        description="batch norm uses the batch of all processes, not the part of each; on GPUs",
    )
    precision: Literal["32-true", "bf16-mixed"] = "32-true"

    @property
    def one_process(self) -> Self:
        """The same settings for a single process."""
        return self.model_copy(update={"processes": 1, "nodes": 1})

    @property
    def gpu(self) -> Literal["cuda", "mps"] | None:
        """The kind of GPU that is used on this machine, if any."""
        if self.accelerator in ("auto", "cuda") and torch.cuda.is_available():
            return "cuda"
        if self.accelerator in ("auto", "mps") and torch.backends.mps.is_available():
            return "mps"
        return None


class Stage(Settings):
    """A part of a run with its own method, optimizer or schedule.

    Student i starts a stage with the final weights of student i of the stage before. A section
    replaces that of the recipe completely.
    """

    name: str = Field(min_length=1, description="name in the metrics")
    method: AnyMethodSettings | None = Field(None, description="default: that of the recipe")
    optimizer: AnyOptimizer | None = Field(None, description="default: that of the recipe")
    schedule: AnySchedule | None = Field(None, description="default: that of the recipe")


class Recipe(Settings):
    """All settings of a run. The same recipe on the same machine gives the same result.

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
    trunk: TrunkSettings | None = Field(
        None, description="networks get the features of a frozen trunk in place of images"
    )
    network: AnyNetworkSettings
    method: AnyMethodSettings
    batch: BatchSettings
    optimizer: AnyOptimizer
    schedule: AnySchedule
    ema: EMASettings | None = None
    stages: tuple[Stage, ...] = Field(
        (), strict=False, description="stages of the run, in order; default: a single stage"
    )
    evaluation: EvaluationSettings = EvaluationSettings()
    device: DeviceSettings = DeviceSettings()

    @model_validator(mode="after")
    def _normalize_as_pretrained(self) -> Self:
        pretrained = self.trunk or self.network
        expected = pretrained.normalization
        if expected in (None, self.normalization):
            return self
        if "normalization" in self.model_fields_set:
            warnings.warn(
                f"the weights of {pretrained.name} need their own normalization, which replaces "
                "that of the recipe",
                NotKeptWarning,
                stacklevel=2,
            )
        object.__setattr__(self, "normalization", expected)  # recipes are frozen for others
        return self

    @model_validator(mode="after")
    def _check_trunk(self) -> Self:
        if self.trunk is None:
            return self
        if self.network.name != "mlp":  # before features are computed
            raise ValueError(
                f"network.name = {self.network.name!r} is for images, but the trunk makes feature "
                "vectors of them; use 'mlp', or leave out the trunk"
            )
        methods = [stage.method for stage in self.split_stages()]
        unserved = [each.name for each in methods if needs_strong_views(each)]
        if unserved and not self.trunk.strong_views:
            raise ValueError(
                f"trunk.strong_views = 0, but method.name = {unserved[0]!r} learns from strong "
                "views; keep at least 1 of every image, or use another method"
            )
        return self

    @model_validator(mode="after")
    def _check_stages(self) -> Self:
        names = [stage.name for stage in self.stages]
        if len(set(names)) < len(names):
            raise ValueError(f"stages: each needs a name of its own, not {', '.join(names)}")
        if self.stages and self.stages[-1].method not in (None, self.method):
            raise ValueError(
                "stages: the last one has the method of the recipe; set method in the recipe"
            )
        return self

    @property
    def epochs(self) -> int:
        """Number of epochs of all stages."""
        return sum(stage.schedule.epochs for stage in self.split_stages())

    def split_stages(self) -> "list[Recipe]":
        """Return one recipe per stage, in order; only itself if it has no stages."""
        if not self.stages:
            return [self]
        return [self._apply(stage) for stage in self.stages]

    def _apply(self, stage: Stage) -> "Recipe":
        own = {key: value for key, value in stage if key != "name" and value is not None}
        return self.model_copy(update=own | {"stages": ()})

    @property
    def imports(self) -> frozenset[str]:
        """The import paths of code of others that it names."""
        return find_imports(self.model_dump())

    def defines_same_run_as(self, other: "Recipe") -> bool:
        """Return whether both give the same result, that is, differ at most in the description."""
        return self.model_copy(update={"description": other.description}) == other
