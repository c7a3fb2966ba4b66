"""Smooth Neighbors: samples of one class should lie close together, others apart.

Luo et al., Smooth neighbors on teacher graphs for semi-supervised learning, CVPR 2018. It
extends a method with a target 𝒯ₓ by a term for the features h of two samples i and j:

    ℓ(i, j) = ‖hᵢ − hⱼ‖² if they are neighbors, else max(0, margin − ‖hᵢ − hⱼ‖)²

where ‖·‖² is a mean over the features in the authors' program, to which its weights belong.
Neighbors are samples of the same class: the label if known, else the class of the target. The
original draws random pairs of a batch; this uses all pairs, which has the same expectation.
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
    """The settings that Smooth Neighbors adds to a method."""

    neighbor_weight: Weight = Field(
        0.4, description="weight of the term, as a multiple of consistency_weight"
    )
    margin: float = Field(1.0, gt=0, description="distance that different classes should have")
    neighbor_distance: Literal["mean", "sum"] = Field(
        "mean",
        description="‖·‖² as a mean over the features, as in the authors' program, or as a sum, "
        "which pulls more, and is not the published method",
    )


class SmoothNeighbors(ConsistencyMethod):
    """Adds the term ``neighbors`` to a method; must come first among the base classes."""

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
            * losses.neighbors(
                prediction.features, labels, settings.margin, settings.neighbor_distance == "mean"
            )
        }


class PiSmoothNeighborsSettings(NeighborOptions, PiOptions):
    """The settings of the Π Model and of Smooth Neighbors."""

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


class TemporalSmoothNeighborsSettings(TemporalOptions, NeighborOptions):
    """The settings of Temporal Ensembling and of Smooth Neighbors."""

    name: Literal["temporal+sn"] = "temporal+sn"


class TemporalSmoothNeighbors(SmoothNeighbors, TemporalEnsembling):
    """Temporal Ensembling with Smooth Neighbors.

    A sample without earlier predictions gets the class of its current one.
    """

    summary = "Temporal Ensembling with Smooth Neighbors on the features"
    Settings = TemporalSmoothNeighborsSettings
    settings: TemporalSmoothNeighborsSettings
