"""The base of Π Model, Temporal Ensembling and Mean Teacher: one student that follows a target.

Eq. 1 of Ke et al., Dual Student: Breaking the Limits of the Teacher in Semi-supervised
Learning, ICCV 2019, with the terms around it:

    ℒ = ℒ_cls + λ ℛ(f(θ, x), 𝒯ₓ)   (+ the distance of the decoupled heads)

These methods differ only in the target 𝒯ₓ.
"""

from abc import abstractmethod
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from dualstudent import losses
from dualstudent.batch import Batch
from dualstudent.methods.method import (
    ClassificationAverage,
    Method,
    MethodSettings,
    StudentLoss,
)
from dualstudent.prediction import Prediction

Weight = Annotated[float, Field(ge=0)]


class ConsistencySettings(MethodSettings):
    """The weights of the loss terms, and how they are computed."""

    consistency_weight: Weight = Field(
        100.0, description="λ, weight of the agreement with the target (ℒ_con)"
    )
    logit_distance_weight: Weight = Field(
        0.01, description="weight of the distance between the decoupled heads"
    )
    distance: Literal["mse", "kl"] = Field(
        "mse", description="ℛ of Eq. 1 and Eq. 5, between two predictions"
    )
    classification_average: ClassificationAverage = Field(
        "batch", description="average the cross entropy over the batch or its labeled samples"
    )

    @property
    def distance_function(self) -> losses.Distance:
        """The function ℛ that ``distance`` names."""
        return losses.mse if self.distance == "mse" else losses.kl


def consistency_terms(
    prediction: Prediction,
    target: Tensor,
    labels: Tensor,
    settings: ConsistencySettings,
    ramp: float,
) -> dict[str, Tensor]:
    """Compute the loss terms of one student: labels, target, and distance of its heads.

    Args:
        prediction: the student's prediction, with gradient.
        target: (B, C), 𝒯ₓ, probabilities.
        labels: (B,) int64, −1 where unlabeled.
        settings: the weights.
        ramp: factor of λ in [0, 1].

    Returns:
        name → scalar, each multiplied by its weight.

    Example:
        >>> import torch
        >>> student = Prediction(torch.zeros(1, 2), torch.zeros(1, 2), torch.empty(1, 0))
        >>> settings = ConsistencySettings(name="example", consistency_weight=8)
        >>> terms = consistency_terms(
        ...     student, torch.tensor([[1.0, 0.0]]), torch.tensor([-1]), settings, ramp=0.5
        ... )
        >>> {name: term.item() for name, term in terms.items()}
        {'classification': 0.0, 'logit_distance': 0.0, 'consistency': 1.0}
    """
    class_logits, consistency_logits, _ = prediction
    return {
        "classification": settings.compute_classification(
            class_logits, labels, settings.classification_average
        ),
        "logit_distance": settings.logit_distance_weight
        * losses.logit_distance(class_logits, consistency_logits),
        "consistency": settings.consistency_weight
        * ramp
        * losses.consistency(consistency_logits, target, settings.distance_function),
    }


class ConsistencyMethod(Method):
    """One student that sees view 1 and follows the target of a subclass.

    A step has two parts that subclasses can extend: the forward passes (:meth:`outputs`) and
    the loss terms (:meth:`terms`).
    """

    settings: ConsistencySettings

    @abstractmethod
    def target(self, batch: Batch, prediction: Prediction) -> Tensor:
        """Compute 𝒯ₓ for the samples of ``batch``.

        Args:
            batch: the input of the student.
            prediction: the student's prediction for view 1.

        Returns:
            (B, C), probabilities.
        """

    def outputs(self, batch: Batch) -> tuple[Prediction, Tensor]:
        """Return the student's prediction for view 1, with gradient, and the target."""
        prediction: Prediction = self.students[0](batch.views[0])
        return prediction, self.target(batch, prediction)

    def terms(
        self, prediction: Prediction, target: Tensor, batch: Batch, ramp: float
    ) -> dict[str, Tensor]:
        """Return the loss terms by name, each multiplied by its weight."""
        return consistency_terms(prediction, target, batch.labels, self.settings, ramp)

    def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
        prediction, target = self.outputs(batch)
        return [StudentLoss(self.terms(prediction, target, batch, ramp))]
