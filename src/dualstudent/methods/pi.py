"""Π Model: a student that follows its own prediction for another view.

Laine & Aila, Temporal ensembling for semi-supervised learning, ICLR 2017. In Eq. 1 of Dual
Student, with x₁ and x₂ the two views of x and new dropout in each pass:

    ℛ(f(θ, x₁), 𝒯ₓ),  𝒯ₓ = f(θ, x₂)
"""

from contextlib import nullcontext
from typing import ClassVar, Literal

import torch
from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError
from torch import Tensor

from dualstudent.batch import Batch
from dualstudent.losses import Distance, squared_distance
from dualstudent.methods.consistency import ConsistencyMethod, ConsistencySettings
from dualstudent.prediction import Prediction


class PiOptions(ConsistencySettings):
    """The settings of the Π Model and the methods built on it."""

    gradient_through: Literal["one", "both"] = Field(
        "one",
        description="which passes receive gradient: one, with the other as a constant target, or "
        "both, as in the original",
    )

    @field_validator("gradient_through")
    @classmethod
    def _check_symmetric(cls, value: str, info: ValidationInfo) -> str:
        if value == "both" and info.data.get("distance") == "kl":
            raise PydanticCustomError("one_sided", "goes with distance = 'mse' only")
        return value

    @property
    def distance_function(self) -> Distance:
        """The function ℛ; with gradient through both passes, its target is not a constant."""
        if self.gradient_through == "both":
            return _squared_distance_both_ways
        return super().distance_function


class PiModelSettings(PiOptions):
    """The default weight is that of CIFAR-10; the paper's results use a constant target."""

    name: Literal["pi"] = "pi"


class PiModel(ConsistencyMethod):
    """The consistency head on view 1 follows the class head of the same network on view 2.

    Both passes run in training mode: their dropout differs, and batch-norm statistics are
    updated twice a step.

    Example:
        >>> from dualstudent.networks import DigitsCNN
        >>> method = PiModel([DigitsCNN()])
        >>> images, labels = torch.rand(4, 1, 28, 28), torch.tensor([-1, -1, 3, 7])
        >>> batch = Batch((images, images + 0.1), labels)
        >>> [sorted(loss.terms) for loss in method.losses(batch, ramp=1.0)]
        [['classification', 'consistency', 'logit_distance']]
    """

    summary = "Π Model: equal predictions for two views"
    Settings: ClassVar[type[PiOptions]] = PiModelSettings
    settings: PiOptions

    def target(self, batch: Batch, prediction: Prediction) -> Tensor:
        both = self.settings.gradient_through == "both"
        with nullcontext() if both else torch.no_grad():
            other: Prediction = self.students[0](batch.views[1])
            return other.class_logits.softmax(dim=1)


def _squared_distance_both_ways(logits: Tensor, target: Tensor) -> Tensor:
    return squared_distance(logits.softmax(dim=1), target)
