"""How far predictions can be trusted: figures of probabilities, labels and stability alone."""

from dualstudent.trust.calibration import ReliabilityBin, expected_calibration_error, reliability
from dualstudent.trust.confusion import ClassFigures, class_figures, confusion_matrix
from dualstudent.trust.coverage import CoveragePoint, agreed_point, coverage_curve, stable_point
from dualstudent.trust.predicted import PredictedSet
from dualstudent.trust.temperature import fit_temperature, tempered, with_temperature
from dualstudent.trust.threshold import Threshold, find_threshold, lower_bound

__all__ = [
    "ClassFigures",
    "CoveragePoint",
    "PredictedSet",
    "ReliabilityBin",
    "Threshold",
    "agreed_point",
    "class_figures",
    "confusion_matrix",
    "coverage_curve",
    "expected_calibration_error",
    "find_threshold",
    "fit_temperature",
    "lower_bound",
    "reliability",
    "stable_point",
    "tempered",
    "with_temperature",
]
