"""Makes a student of any module that computes features."""

from itertools import chain
from numbers import Integral

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from dualstudent.errors import UserError
from dualstudent.networks.layers import DecoupledHeads
from dualstudent.networks.network import Network


class Student(Network):
    """A module with decoupled heads on its features; see :func:`as_student`."""

    def __init__(self, module: nn.Module, features: int, classes: int) -> None:
        super().__init__(module, DecoupledHeads(features, classes, weight_norm=False))
        self._width = features

    def features(self, images: Tensor) -> Tensor:
        found = self.trunk(images)
        if isinstance(found, Tensor) and found.dim() == 4:
            found = found.mean(dim=(2, 3))
        if not isinstance(found, Tensor) or found.shape != (len(images), self._width):
            what = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise UserError(
                f"as_student: {type(self.trunk).__name__} returns {what} for {len(images)} "
                f"samples, not ({len(images)}, {self._width}); set features to what it returns, "
                "and take its last layer off if that classifies (resnet.fc = nn.Identity())"
            )
        return found


def as_student(module: nn.Module, features: int, classes: int) -> Student:
    """Turn a module into a student: a network with decoupled heads, which methods can train.

    Args:
        module: maps inputs (B, …) to features (B, features), or to maps (B, features, h, w),
            which are averaged. It must not classify itself: take its last layer off.
        features: D, the number of features of ``module``.
        classes: C.

    Raises:
        UserError: if it is no module, has lazy layers that have seen no input yet, the numbers make
            no sense, or it returns other shapes when it is used.

    Example:
        >>> import torch
        >>> module = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU())
        >>> student = as_student(module, features=32, classes=10)
        >>> student(torch.rand(5, 1, 8, 8)).class_logits.shape
        torch.Size([5, 10])
    """
    if not isinstance(module, nn.Module):
        raise UserError(f"as_student: needs a torch.nn.Module, not {module!r}")
    if any(map(is_lazy, chain(module.parameters(), module.buffers()))):
        raise UserError(
            f"as_student: {type(module).__name__} has lazy layers without weights; call it once on "
            "samples of your shape, module(torch.zeros(2, channels, height, width))"
        )
    for name, count, least in (("features", features, 1), ("classes", classes, 2)):
        if not isinstance(count, Integral) or isinstance(count, bool) or count < least:
            raise UserError(
                f"as_student: {name} = {count!r} must be a whole number from {least} on"
            )
    return Student(module, int(features), int(classes))
