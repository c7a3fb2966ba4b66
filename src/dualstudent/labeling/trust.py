"""Which predictions of a run can be trusted, measured on images that it was not trained on."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from dualstudent.calibration import (
    Threshold,
    apply_temperature,
    find_threshold,
    fit_temperature,
    recalibrate,
)
from dualstudent.training.inference import Predictions
from dualstudent.training.trainer import Trainer

MIN_ACCEPTED = 20  # held-out predictions above a threshold; 20 of 20 correct prove 86 %


@dataclass(frozen=True)
class TrustRule:
    """Calibrates the confidence of a run ("trust") and decides which predictions to trust.

    Attributes:
        part: the held-out images it was fitted on; ``"nothing"`` if there are none.
        images: their number.
        precision: wanted share of correct predictions among the trusted ones, in (0, 1].
        temperature: divides the logits; None if it could not be fitted, as there are no held-out
            images or all of them are predicted correctly.
        threshold: smallest trust to accept; None if no threshold reaches ``precision``, and in
            domain adaptation with labels of the source only.
    """

    part: Literal["validation", "source validation", "test", "nothing"]
    images: int
    precision: float
    temperature: float | None = None
    threshold: Threshold | None = None

    @classmethod
    def fit(cls, trainer: Trainer, precision: float) -> "TrustRule":
        """Fit the rule to the test part of a trained run, or else to its validation part.

        Args:
            trainer: a trained one.
            precision: wanted share of correct predictions among the trusted ones, in (0, 1].
        """
        data = trainer.data
        if len(data.test_labels) == 0:
            return cls("nothing", 0, precision)
        predictions = trainer.predict_test()
        found = replace(predictions.add_truth(data.test_labels), stable=predictions.stable_for_all)
        # Without a mistake the likelihood has no maximum: it grows as the temperature falls.
        temperature = None if found.correct.all() else fit_temperature(found)
        part, threshold = trainer.recipe.data.evaluated_part, None
        if part != "source validation":
            calibrated = recalibrate(found, temperature or 1.0)
            threshold = find_threshold(calibrated, precision, MIN_ACCEPTED)
        return cls(part, len(found.labels), precision, temperature, threshold)

    def compute_trust(self, predictions: Predictions) -> Tensor:
        """(n,) float64 in [0, 1], the calibrated probability of each predicted class."""
        calibrated = apply_temperature(predictions.probabilities, self.temperature or 1.0)
        return calibrated.double().amax(dim=1)

    def is_trusted(self, predictions: Predictions) -> Tensor:
        """(n,) bool, whether each prediction is good enough to be used as a label."""
        if self.threshold is None:
            return torch.zeros_like(predictions.agree)
        confident = self.compute_trust(predictions) >= self.threshold.trust
        return confident & predictions.stable_for_all & predictions.agree

    def describe(self) -> list[str]:
        """Two lines for the user: how trust is computed, and which predictions are trusted."""
        where = f"{self.images:,} {self.part} images"
        if self.temperature is not None:
            trust = f"probability, calibrated on {where} (temperature {self.temperature:.2f})"
        elif self.images:
            trust = f"probability, not calibrated: all {where} are predicted correctly"
        else:
            trust = "probability, not calibrated and often too high: there are no held-out images"
        return [f"trust: {trust}", f"trusted: {self._describe_threshold(where)}"]

    def _describe_threshold(self, where: str) -> str:
        if not self.images:
            return (
                "nothing, as there are no test or validation images to measure precision on; add "
                "test images, or ten labels per class so that some are held out, and train again"
            )
        if self.part == "source validation":
            return (
                "nothing, as precision on the source says nothing about the target; put some "
                "labeled images of the target into its folder test, and train again"
            )
        if self.threshold is None:
            return (
                f"nothing: on {where}, no threshold selects {MIN_ACCEPTED} or more predictions "
                f"that are {100 * self.precision:g} % correct, stable and agreed on by all students"
            )
        correct, accepted = self.threshold.correct, self.threshold.accepted
        reused = ""
        if self.part == "test":
            reused = "; evaluate models trained with these predictions on other images"
        return (
            f"stable and agreed on by all students, with a trust of {self.threshold.trust:.4f} or "
            f"more; on the {where} this rule was chosen on, {correct:,} of {accepted:,} are "
            f"correct: at least {100 * self.threshold.at_least:.1f} % with 95 % confidence{reused}"
        )
