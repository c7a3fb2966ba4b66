"""How far predictions can be trusted, from probabilities, labels and stability alone."""

from dualstudent.calibration.coverage import (
    CoveragePoint,
    agreed_point,
    coverage_curve,
    stable_point,
)
from dualstudent.calibration.predicted import PredictedSet, confusion_matrix
from dualstudent.calibration.reliability import (
    ReliabilityBin,
    expected_calibration_error,
    reliability,
)
from dualstudent.calibration.temperature import apply_temperature, fit_temperature, recalibrate
from dualstudent.calibration.threshold import Threshold, find_threshold, lower_bound

__all__ = [
    "CoveragePoint",
    "PredictedSet",
    "ReliabilityBin",
    "Threshold",
    "agreed_point",
    "apply_temperature",
    "confusion_matrix",
    "coverage_curve",
    "expected_calibration_error",
    "find_threshold",
    "fit_temperature",
    "lower_bound",
    "recalibrate",
    "reliability",
    "stable_point",
]
