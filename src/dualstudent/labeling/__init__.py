"""Which images to label next, and which predictions are good enough to use as labels."""

from dualstudent.labeling.ranking import select_for_labeling
from dualstudent.labeling.sheet import LabelSheet, write_labels
from dualstudent.labeling.trust import TrustRule

__all__ = ["LabelSheet", "TrustRule", "select_for_labeling", "write_labels"]
