"""The output of a network."""

from typing import NamedTuple

from torch import Tensor


class Prediction(NamedTuple):
    """The outputs of one network for B samples and C classes.

    The two heads are the *decoupled top layers* of Mean Teacher: the class head learns from
    labels and gives the network's prediction, the consistency head learns from targets. The loss
    :func:`dualstudent.losses.logit_distance` keeps them close.

    Attributes:
        class_logits: (B, C), the prediction.
        consistency_logits: (B, C), compared with the targets of other passes or networks.
        features: (B, D), the input of both heads.
    """

    class_logits: Tensor
    consistency_logits: Tensor
    features: Tensor
