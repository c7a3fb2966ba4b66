"""What to label next: the unlabeled images of a run, and how far to trust what it says of them."""

from dualstudent.labeling.order import labeling_order
from dualstudent.labeling.sheet import LabelSheet, write_labels
from dualstudent.labeling.yardstick import Yardstick

__all__ = ["LabelSheet", "Yardstick", "labeling_order", "write_labels"]
