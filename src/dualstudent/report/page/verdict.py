"""What a network says of a labeled set, brought down to what a page can show."""

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
from dualstudent.report.page.gallery import Gallery, galleries
from dualstudent.training.inference import Predictions

_COVERAGES = 100  # points of the curve, a percent each


@dataclass(frozen=True)
class Calibration:
    """How honest confidence is.

    Attributes:
        bins: by confidence.
        error: ECE, in [0, 1].
    """

    bins: list[ReliabilityBin]
    error: float

    @classmethod
    def of(cls, predicted: PredictedSet) -> "Calibration":
        return cls(reliability(predicted), expected_calibration_error(predicted))


@dataclass(frozen=True)
class Verdict:
    """Of the exported network; nothing in it grows with the number of samples.

    Attributes:
        network: its name.
        headline: the names of the networks that make the result.
        noun: what the samples are called, "images" or "samples".
        samples: how many were looked at.
        unreadable: how many of the set could not be.
        matrix: (C, C), of :func:`~dualstudent.calibration.confusion_matrix`.
        stable_counts: of each class, how many samples truly of it are stable.
        calibration: as the network is.
        temperature: fitted on these samples; None if that would be dishonest, or says nothing.
        tempered: the calibration with it; None without.
        coverage: a hundred points of the curve, of at least 1 %, 2 % … 100 % of the samples.
        by_stability: the same if the samples that a small change moves least come first.
        stable: where believing the stable samples leads.
        agreed: the same for those on which all networks of the headline agree, too.
        galleries: of pictures worth a look; none for samples that are no images.
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
    tempered: Calibration | None
    coverage: list[CoveragePoint]
    by_stability: list[CoveragePoint]
    stable: CoveragePoint
    agreed: CoveragePoint
    galleries: list[Gallery]


def judge(
    answers: Predictions,
    data: PreparedData,
    network: str,
    headline: Sequence[str],
    tempered: bool,
    pictures: int,
) -> Verdict:
    """What ``answers`` to the evaluated samples of ``data`` come down to.

    Args:
        answers: to all of them that can be read.
        data: the samples and their labels.
        network: the name of the exported one.
        headline: the names of those that make the result.
        tempered: whether to fit a temperature, which must not be done on a test set.
        pictures: how many to show in a gallery, at most.
    """
    predicted = answers.add_truth(data.test_labels)
    temperature = _temperature(predicted) if tempered else None
    shown = galleries(answers, predicted, data, headline, pictures)
    return Verdict(
        network,
        list(headline),
        "samples" if shown is None else "images",
        len(predicted.labels),
        len(data.test_labels) - len(predicted.labels),
        confusion_matrix(predicted),
        predicted.labels[predicted.stable].bincount(minlength=len(data.classes)).tolist(),
        Calibration.of(predicted),
        temperature,
        Calibration.of(recalibrate(predicted, temperature)) if temperature else None,
        _thinned(coverage_curve(predicted)),
        _thinned(coverage_curve(predicted, answers.instability)),
        stable_point(predicted),
        agreed_point(predicted),
        shown or [],
    )


def _temperature(predicted: PredictedSet) -> float | None:
    """None at the bounds of the search, where too few samples or mistakes decide."""
    temperature = fit_temperature(predicted)
    return temperature if 1.1 * LOWEST < temperature < HIGHEST / 1.1 else None


def _thinned(curve: Sequence[CoveragePoint]) -> list[CoveragePoint]:
    """For each percent the first point that covers it."""
    points, thinned = iter(curve), []
    point = next(points)
    for percent in range(1, _COVERAGES + 1):
        while point.coverage < percent / _COVERAGES:
            point = next(points)
        thinned.append(point)
    return thinned
