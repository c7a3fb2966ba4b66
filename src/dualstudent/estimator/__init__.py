"""The scikit-learn estimator, and cross-validation with unknown labels."""

from dualstudent.estimator.classifier import DualStudentClassifier
from dualstudent.estimator.selection import SemiSupervisedKFold, skip_unknown

__all__ = ["DualStudentClassifier", "SemiSupervisedKFold", "skip_unknown"]
