"""The scikit-learn estimator."""

from dualstudent.estimator.classifier import DualStudentClassifier

__all__ = ["DualStudentClassifier"]
