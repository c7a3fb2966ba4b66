"""What the page shows about the predictions of a network, small enough to keep."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from dualstudent.calibration import (
    CoveragePoint,
    PredictedSet,
    ReliabilityBin,
    agreed_point,
    confusion_matrix,
    coverage_curve,
    expected_calibration_error,
    fit_temperature,
    recalibrate,
    reliability,
    stable_point,
)
from dualstudent.calibration.temperature import HIGHEST, LOWEST
from dualstudent.data.prepared import PreparedData
from dualstudent.report.page.galleries import Gallery, build_galleries
from dualstudent.training.inference import Predictions

_PERCENTS = 100


@dataclass(frozen=True)
class Calibration:
    """How well confidence matches accuracy.

    Attributes:
        bins: by confidence.
        error: ECE, in [0, 1].
    """

    bins: list[ReliabilityBin]
    error: float

    @classmethod
    def measure(cls, predicted: PredictedSet) -> "Calibration":
        return cls(reliability(predicted), expected_calibration_error(predicted))


@dataclass(frozen=True)
class Evaluation:
    """Of the exported network; its size does not depend on the number of samples.

    Attributes:
        network: its name.
        headline: names of the networks whose mean is the result of the run.
        noun: ``"images"`` or ``"samples"``.
        samples: number of evaluated samples.
        unreadable: number of samples that could not be read.
        matrix: (C, C) of :func:`~dualstudent.calibration.confusion_matrix`.
        stable_counts: number of stable samples of each true class.
        calibration: of the network as it is.
        temperature: fitted on these samples; None on a test part, or if it cannot be fitted.
        calibrated: the calibration with this temperature; None without one.
        coverage: 100 points of the curve, the first that cover 1 %, 2 % … 100 % of the samples.
        by_stability: the same with the most stable samples first.
        stable: the point of accepting the stable samples.
        agreed: the point of accepting the stable samples on which all headline networks agree.
        galleries: of images; empty if the samples are not images.
    """

    network: str
    headline: list[str]
    noun: str
    samples: int
    unreadable: int
    matrix: Tensor
    stable_counts: list[int]
    calibration: Calibration
    temperature: float | None
    calibrated: Calibration | None
    coverage: list[CoveragePoint]
    by_stability: list[CoveragePoint]
    stable: CoveragePoint
    agreed: CoveragePoint
    galleries: list[Gallery]


def evaluate(
    predictions: Predictions,
    data: PreparedData,
    network: str,
    headline: Sequence[str],
    calibrate: bool,
    pictures: int,
) -> Evaluation:
    """Evaluate the predictions for the test samples of ``data``.

    Args:
        predictions: for all test samples that can be read.
        data: the samples and their labels.
        network: name of the exported network.
        headline: names of the networks whose mean is the result of the run.
        calibrate: whether to fit a temperature; must not be done on a test part.
        pictures: largest number of pictures in a gallery.
    """
    predicted = predictions.add_truth(data.test_labels)
    temperature = _fit_temperature(predicted) if calibrate else None
    galleries = build_galleries(predictions, predicted, data, headline, pictures)
    return Evaluation(
        network,
        list(headline),
        "samples" if galleries is None else "images",
        len(predicted.labels),
        len(data.test_labels) - len(predicted.labels),
        confusion_matrix(predicted),
        predicted.labels[predicted.stable].bincount(minlength=len(data.classes)).tolist(),
        Calibration.measure(predicted),
        temperature,
        Calibration.measure(recalibrate(predicted, temperature)) if temperature else None,
        _pick_percents(coverage_curve(predicted)),
        _pick_percents(coverage_curve(predicted, predictions.instability)),
        stable_point(predicted),
        agreed_point(predicted),
        galleries or [],
    )


def _fit_temperature(predicted: PredictedSet) -> float | None:
    """None at the bounds of the search: there are too few samples or mistakes."""
    temperature = fit_temperature(predicted)
    return temperature if 1.1 * LOWEST < temperature < HIGHEST / 1.1 else None


def _pick_percents(curve: Sequence[CoveragePoint]) -> list[CoveragePoint]:
    """For each percent, the first point that covers it."""
    points, picked = iter(curve), []
    point = next(points)
    for percent in range(1, _PERCENTS + 1):
        while point.coverage < percent / _PERCENTS:
            point = next(points)
        picked.append(point)
    return picked
