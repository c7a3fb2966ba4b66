"""How far to trust a run, measured on images that trained nothing."""

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
from dualstudent.training.inference import Predictions, predict
from dualstudent.training.trainer import Trainer

FEWEST = 20  # images that must be believed before their precision is: 20 of 20 prove 86 %


@dataclass(frozen=True)
class Yardstick:
    """What turns the answers of a run into trust, and trust into a decision.

    Attributes:
        part: what it was measured on: a validation part taken from the labels, the test, or
            nothing, if the run has neither.
        images: how many these are.
        wanted: the precision that trusted predictions should have, in (0, 1].
        temperature: that logits are divided by; None where it could not be measured: without
            images, or without a mistake among them.
        threshold: the smallest trust that is good enough; None if none is, and in adaptation,
            where the labels of the source prove nothing about the target.
    """

    part: Literal["validation", "source validation", "test", "nothing"]
    images: int
    wanted: float
    temperature: float | None = None
    threshold: Threshold | None = None

    @classmethod
    def measured(cls, trainer: Trainer, precision: float) -> "Yardstick":
        """On the validation part of a trained run, or on its test.

        Args:
            trainer: with its networks as they were at the end.
            precision: of the predictions to trust.
        """
        data = trainer.data
        everything = torch.arange(len(data.test_labels))
        if len(everything) == 0:
            return cls("nothing", 0, precision)
        seed, device = trainer.recipe.seed, trainer.fabric.device
        said = Predictions.join(predict(trainer.method, data.test, everything, seed, device))
        found = replace(said.add_truth(data.test_labels), stable=said.stable_for_all)
        # If all is right, every temperature is too high, and tells nothing.
        temperature = None if found.correct.all() else fit_temperature(found)
        part, threshold = trainer.recipe.data.evaluated_part, None
        if part != "source validation":
            calibrated = recalibrate(found, temperature or 1.0)
            threshold = find_threshold(calibrated, precision, FEWEST)
        return cls(part, len(found.labels), precision, temperature, threshold)

    def trust(self, said: Predictions) -> Tensor:
        """(n,) float64 in [0, 1]: how probable the predicted classes are."""
        return apply_temperature(said.probabilities, self.temperature or 1.0).double().amax(dim=1)

    def trusted(self, said: Predictions) -> Tensor:
        """(n,) bool: which predictions are as good as labels."""
        if self.threshold is None:
            return torch.zeros_like(said.agree)
        sure = self.trust(said) >= self.threshold.trust
        return sure & said.stable_for_all & said.agree

    def in_words(self) -> list[str]:
        """What trust is, and what is trusted, a sentence each."""
        where = f"{self.images:,} {self.part} images"
        if self.temperature is not None:
            trust = f"the probability, calibrated on {where} (temperature {self.temperature:.2f})"
        elif self.images:
            trust = f"the network's own probability: all of {where} are right, too few to calibrate"
        else:
            trust = (
                "the network's own probability, which is often too high: nothing to calibrate on"
            )
        return [f"trust: {trust}", f"trusted: {self._decision(where)}"]

    def _decision(self, where: str) -> str:
        if not self.images:
            return (
                "nothing, for there are neither test nor validation images to measure it on; "
                "with ten labels a class some are held out, or add test images, and train again"
            )
        if self.part == "source validation":
            return (
                "nothing, for labels of the source prove nothing about the target; put some "
                "labeled images into its folder test, and train again"
            )
        if self.threshold is None:
            return (
                f"nothing: on {where} there are no {FEWEST} or more that are stable for all "
                f"students, agreed upon, and right in {100 * self.wanted:g} % of the cases"
            )
        right, believed = self.threshold.right, self.threshold.believed
        spent = ""
        if self.part == "test":
            spent = "; a model trained with these predictions must be measured on other images"
        return (
            f"stable for all students, who agree, and a trust of {self.threshold.trust:.4f} or "
            f"more; chosen and measured on {where}: {right:,} of {believed:,} right, so with 95 % "
            f"confidence about {100 * self.threshold.at_least:.1f} % or more{spent}"
        )
