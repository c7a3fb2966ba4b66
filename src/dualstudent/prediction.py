"""The output of a network."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dualstudent.errors import UserError


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


def check_prediction(
    widths: set[int], network: nn.Module, inputs: tuple[Tensor, ...], found: Any
) -> None:
    """Check what a network returned; made to be a forward hook of it.

    Args:
        widths: numbers of classes that networks beside it have returned; its own is added.
        network: that was called.
        inputs: of its call.
        found: what it returned.

    Raises:
        UserError: if it is no :class:`Prediction`, or has other shapes.
    """
    tracing = torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call]
    if tracing or not inputs:  # sizes are tensors then, or arguments have names
        return
    name, rows = type(network).__name__, len(inputs[0])
    if not isinstance(found, Prediction):
        what = f"a {type(found).__name__}"
        if isinstance(found, Tensor):
            what = f"a plain tensor {tuple(found.shape)}"
        raise UserError(
            f"the network {name} returns {what}, but methods need two heads: wrap it by "
            "dualstudent.as_student(module, features=…, classes=…), or return a Prediction"
        )
    shapes = [tuple(getattr(logits, "shape", ())) for logits in found[:2]]
    if len(set(shapes)) > 1 or len(shapes[0]) != 2 or shapes[0][0] != rows:
        raise UserError(
            f"the network {name} returns class logits {shapes[0]} and consistency logits "
            f"{shapes[1]} for {rows} samples; both must be ({rows}, classes)"
        )
    width = shapes[0][1]
    if others := widths - {width}:
        widths.clear()  # the network may be used again, beside others
        raise UserError(
            f"the network {name} returns {width} classes, another student {min(others)}; give all "
            "the same classes"
        )
    widths.add(width)
