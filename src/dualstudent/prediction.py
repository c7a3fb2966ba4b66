"""What a network returns."""

from typing import NamedTuple

from torch import Tensor


class Prediction(NamedTuple):
    """The outputs of one network for a batch of B samples and C classes.

    The two heads are the *decoupled top layers* of Mean Teacher: the class head learns from
    labels and speaks for the network, the consistency head follows targets. They are tied by
    :func:`dualstudent.losses.logit_distance`.

    Attributes:
        class_logits: (B, C), the network's answer.
        consistency_logits: (B, C), compared with targets of other passes or networks.
        features: (B, D), what both heads see.
    """

    class_logits: Tensor
    consistency_logits: Tensor
    features: Tensor
