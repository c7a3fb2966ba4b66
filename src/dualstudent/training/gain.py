"""What unlabeled images gained: errors with them and from the labels alone, image by image."""

import json
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from dualstudent.errors import UserError
from dualstudent.training.trainer import Trainer

Errors: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Two times (n,), 1 where an answer is wrong, else 0: with unlabeled images, and without."""

_LEVEL = 0.05  # of the sign test
_RESAMPLES, _SEED = 10_000, 0


@dataclass(frozen=True)
class Gain:
    """The errors with unlabeled images and from the labels alone, in percent.

    Attributes:
        part: the images that both runs were evaluated on, or that the labels were cross-validated.
        images: their number.
        error: of the run that learned from unlabeled images, too.
        labels_only_error: of the run that learned from the labels alone.
        interval: the 95 % interval of ``points``, by resampling the images.
        chosen_on: what chose the model to use; None if nothing did, as test images must not.
        labels_only_used: whether the model from the labels alone was chosen.
        guess_error: of always naming the most frequent class of the images; None if not computed.
    """

    part: Literal["test", "validation", "cross-validation"]
    images: int
    error: float
    labels_only_error: float
    interval: tuple[float, float]
    chosen_on: Literal["validation", "cross-validation"] | None
    labels_only_used: bool
    guess_error: float | None = None

    @property
    def points(self) -> float:
        """How much lower the error is with unlabeled images; negative if it is higher."""
        return self.labels_only_error - self.error

    def describe(self, labels_only: object = "labels-only", is_refit: bool = False) -> list[str]:
        """Say in plain sentences what was gained, and if it was lost, which model is used.

        Args:
            labels_only: the folder of the run on the labels alone.
            is_refit: whether what is used is trained once more before it predicts or is exported.
        """
        low, high = self.interval if self.points >= 0 else (-self.interval[1], -self.interval[0])
        chance = "; this may be chance" if low <= 0 else ""
        where = f"{self.part} images"
        if self.part == "cross-validation":
            where = "labels, each hidden once"
        sentences = [
            f"The unlabeled images {'gained' if self.points >= 0 else 'lost'} "
            f"{abs(self.points):.1f} points (95 % interval {low:.1f} to {high:.1f}, from "
            f"resampling {self.images:,} {where}{chance}): {self.error:.2f} % error "
            f"with them, {self.labels_only_error:.2f} % from the labels alone."
        ]
        if self.guess_error is not None and self.labels_only_error >= self.guess_error:
            sentences.append(
                "From the labels alone it is no better than naming the most frequent class every "
                "time: the training was too short to compare; train longer."
            )
        if self.labels_only_used:
            users = "label and the report" if is_refit else "predict, label, export and the report"
            used = f"{users} use the model from the labels alone, in {labels_only}"
            sentences.append(
                f"In cross-validation over the labels it was clearly worse with them, so {used}."
                if self.part == "test"
                else f"So {used}; as these labels chose it, its error may be too optimistic."
            )
        elif self.points < 0:
            sentences.append(
                f"{self._explain_keeping()}, so the one that learned from all images is used; to "
                f"use the other one, name its folder as the run: {labels_only}."
            )
        return sentences

    def _explain_keeping(self) -> str:
        """Why the model that learned from unlabeled images is used although they lost."""
        if self.chosen_on is None:
            return "Test images must not choose the model"
        if self.part == "test":
            return (
                "Test images must not choose the model, and in cross-validation over the labels "
                "the one from the labels alone was not clearly better"
            )
        return "So few images cannot tell which model is better"


def read_gain(result: dict[str, Any]) -> Gain | None:
    """Return the gain that the result of a run holds; None for a run without an opponent.

    Raises:
        UserError: if it is malformed.
    """
    if result.get("gain") is None:
        return None
    try:
        return TypeAdapter(Gain).validate_json(json.dumps(result["gain"]), strict=True)
    except ValidationError as error:
        raise UserError("the gain in result.json is malformed; bring back the file") from error


def measure_gain(ours: Trainer, labels_only: Trainer, by_labels: Errors | None = None) -> Gain:
    """Compare a trained run with one on the labels alone, which has the same data.

    Test images never choose the model to use, because they would no longer tell how good the
    chosen one is. Validation images do, or labels that were hidden from short trainings: the labels
    alone are used if their error is clearly lower, by a sign test. A few images would often be
    wrong about a small difference, and unlabeled images usually help.

    Args:
        ours: the run that learned from unlabeled images, too.
        labels_only: the other one.
        by_labels: the errors of both in cross-validation, which choose where there is a test part.
    """
    tested = ours.recipe.data.evaluated_part != "validation"
    part: Literal["test", "validation"] = "test" if tested else "validation"
    gain = compute_gain(part, find_errors(ours), find_errors(labels_only))
    frequent = int(ours.data.test_labels.bincount().max())
    gain = replace(gain, guess_error=100 * (1 - frequent / gain.images))
    if not (tested and by_labels):
        return gain
    chosen = compute_gain("cross-validation", *by_labels)
    return replace(gain, chosen_on=chosen.chosen_on, labels_only_used=chosen.labels_only_used)


def compute_gain(
    part: Literal["test", "validation", "cross-validation"],
    errors: NDArray[np.float64],
    labels_only_errors: NDArray[np.float64],
) -> Gain:
    """Compare errors (n,) of 0 or 1 with and without unlabeled images, on the same n images."""
    gains = labels_only_errors - errors
    return Gain(
        part,
        len(errors),
        100 * float(errors.mean()),
        100 * float(labels_only_errors.mean()),
        resample_mean(100 * gains),
        None if part == "test" else part,
        part != "test" and _is_clear_loss(gains),
    )


def _is_clear_loss(gains: NDArray[np.float64]) -> bool:
    """Whether far more gains are below 0 than above: the sign test, exact for few images."""
    from scipy.stats import binomtest

    lost, won = int((gains < 0).sum()), int((gains > 0).sum())
    return bool(lost > won and binomtest(lost, lost + won).pvalue < _LEVEL)


def resample_mean(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the mean of ``values``, the same at every call.

    It reaches from the 2.5 % to the 97.5 % quantile of the means of 10,000 resamples: n of the n
    values each, drawn with replacement. Equal values are counted instead of drawn one by one.

    Example:
        >>> resample_mean(np.array([0.0, 0.0, 100.0, 0.0]))
        (0.0, 75.0)
    """
    distinct, counts = np.unique(values, return_counts=True)
    total = len(values)
    drawn = np.random.default_rng(_SEED).multinomial(total, counts / total, _RESAMPLES)
    low, high = np.quantile(drawn @ distinct / total, (0.025, 0.975))
    return float(low), float(high)


def find_errors(trainer: Trainer) -> NDArray[np.float64]:
    """Return (n,), 1 where the network that ``predict`` uses errs about a test image, else 0."""
    found = trainer.predict_test()
    wrong = found.probabilities.argmax(dim=1) != trainer.data.test_labels.cpu()[found.indices]
    return wrong.double().numpy()
