"""Networks, which map images (B, channels, H, W) or vectors (B, features) to a Prediction."""

from dualstudent.networks.cnn13 import CNN13
from dualstudent.networks.digits_cnn import DigitsCNN
from dualstudent.networks.efficientnet_lite import (
    EfficientNetLite0,
    EfficientNetLite1,
    EfficientNetLite2,
)
from dualstudent.networks.french_cnn import FrenchCNN
from dualstudent.networks.mlp import MLP
from dualstudent.networks.quick_cnn import QuickCNN
from dualstudent.networks.resnext import ResNeXt50
from dualstudent.networks.shake_shake import ShakeShake26
from dualstudent.networks.student import as_student
from dualstudent.networks.whitened_cnn import WhitenedCNN

__all__ = [
    "CNN13",
    "MLP",
    "DigitsCNN",
    "EfficientNetLite0",
    "EfficientNetLite1",
    "EfficientNetLite2",
    "FrenchCNN",
    "QuickCNN",
    "ResNeXt50",
    "ShakeShake26",
    "WhitenedCNN",
    "as_student",
]
