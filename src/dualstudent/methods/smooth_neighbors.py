"""Smooth Neighbors: samples of one class should lie close together, others apart.

Luo et al., Smooth neighbors on teacher graphs for semi-supervised learning, CVPR 2018. Added
to a method whose student follows a target 𝒯ₓ, for the features h of two samples i and j:

    ℓ(i, j) = ‖hᵢ − hⱼ‖² if they are neighbors, else max(0, margin − ‖hᵢ − hⱼ‖)²

Neighbors are samples of the same class: the true one where it is known, else that of the
target. The original draws random pairs of a batch; here all its pairs are taken, whose mean is
what the original's mean estimates.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from dualstudent import losses
from dualstudent.batch import Batch
from dualstudent.methods.consistency import ConsistencyMethod, ConsistencySettings, Weight
from dualstudent.methods.pi import PiModel, PiOptions
from dualstudent.methods.temporal import TemporalEnsembling, TemporalOptions
from dualstudent.prediction import Prediction


class NeighborOptions(ConsistencySettings):
    """What the addition adds to the settings of the method it is added to."""

    neighbor_weight: Weight = Field(0.4, description="as a multiple of consistency_weight")
    margin: float = Field(1.0, gt=0, description="how far apart other classes should be")


class SmoothNeighbors(ConsistencyMethod):
    """Adds the term ``neighbors``; to be named before the method that it is added to."""

    settings: NeighborOptions

    def terms(
        self, prediction: Prediction, target: Tensor, batch: Batch, ramp: float
    ) -> dict[str, Tensor]:
        settings = self.settings
        labels = torch.where(batch.labels < 0, target.argmax(dim=1), batch.labels)
        return super().terms(prediction, target, batch, ramp) | {
            "neighbors": settings.neighbor_weight
            * settings.consistency_weight
            * ramp
            * losses.neighbors(prediction.features, labels, settings.margin)
        }


class PiSmoothNeighborsSettings(NeighborOptions, PiOptions):
    """Those of the Π Model and those of the neighbors."""

    name: Literal["pi+sn"] = "pi+sn"


class PiSmoothNeighbors(SmoothNeighbors, PiModel):
    """Π Model with Smooth Neighbors.

    Example:
        >>> from dualstudent.networks import DigitsCNN
        >>> method = PiSmoothNeighbors([DigitsCNN()])
        >>> images, labels = torch.rand(4, 1, 28, 28), torch.tensor([-1, -1, 3, 7])
        >>> batch = Batch((images, images + 0.1), labels)
        >>> [sorted(loss.terms) for loss in method.losses(batch, ramp=1.0)]
        [['classification', 'consistency', 'logit_distance', 'neighbors']]
    """

    summary = "Π Model with Smooth Neighbors on the features"
    Settings = PiSmoothNeighborsSettings
    settings: PiSmoothNeighborsSettings


class TemporalSmoothNeighborsSettings(NeighborOptions, TemporalOptions):
    """Those of Temporal Ensembling and those of the neighbors."""

    name: Literal["temporal+sn"] = "temporal+sn"


class TemporalSmoothNeighbors(SmoothNeighbors, TemporalEnsembling):
    """Temporal Ensembling with Smooth Neighbors; a sample without a past is judged as it is."""

    summary = "Temporal Ensembling with Smooth Neighbors on the features"
    Settings = TemporalSmoothNeighborsSettings
    settings: TemporalSmoothNeighborsSettings
