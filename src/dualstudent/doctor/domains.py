"""Finds the domains whose samples a loss term depends on, by the gradient in the rows of the views.

By the statistics of batch norm, every sample of a batch depends on all others. So a copy of the
method computes the same losses once more, with the same random numbers, but takes these statistics
as constants.
"""

from copy import deepcopy
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dualstudent.batch import Batch
from dualstudent.generators import preserve_rng
from dualstudent.methods import Method


class DomainTrace:
    """The losses of a batch, whose gradient leads back to the rows of each domain.

    Args:
        method: computes the losses, fully ramped up; is not changed.
        batch: of two domains.
        shared: objects that a hook of the method belongs to, which cannot be copied.
    """

    def __init__(self, method: Method, batch: Batch, *shared: object) -> None:
        self._views = tuple(view.detach().requires_grad_() for view in batch.views)
        self._of_target = [
            batch.domains[method.views.locate(number, len(view), len(batch))] > 0
            for number, view in enumerate(self._views)
        ]
        copied = _copy(method, shared)
        for layer in copied.modules():
            if isinstance(layer, _BatchNorm) and layer.training:
                layer.eval()
                layer.register_forward_pre_hook(_hold_statistics)
        with preserve_rng():
            losses = copied.losses(replace(batch, views=self._views), 1.0)
        self._terms = [loss.terms for loss in losses]

    def find_domains(self, student: int, term: str) -> frozenset[str]:
        """Find the domains that a term of student ``student``, counted from 0, depends on."""
        value = self._terms[student][term]
        if not value.requires_grad:
            return frozenset()
        found = torch.autograd.grad(value, self._views, retain_graph=True, allow_unused=True)
        return frozenset(
            "target" if of_target else "source"
            for targets, gradient in zip(self._of_target, found, strict=True)
            if gradient is not None
            for of_target in targets[gradient.flatten(1).any(dim=1)].tolist()
        )


def _copy(method: Method, shared: tuple[object, ...]) -> Method:
    """Copy a method; its buffers may even carry gradient by mistake, which deepcopy refuses."""
    known: dict[int, object] = {id(each): each for each in shared}
    known |= {id(buffer): buffer.detach().clone() for buffer in method.buffers()}
    return deepcopy(method, known)


def _hold_statistics(layer: nn.Module, inputs: tuple[Tensor]) -> None:
    """Let a batch norm in evaluation mode normalize rows by their own statistics, as constants.

    With batch norm by domain, the last rows are of the source and have statistics of their own.
    """
    (rows,) = inputs
    sources = getattr(layer, "sources", 0)
    target, source = rows.detach().tensor_split([len(rows) - sources])
    if len(target):
        layer.running_var, layer.running_mean = _measure(target)
    if len(source):
        layer.source_var, layer.source_mean = _measure(source)


def _measure(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Variance and mean of each channel, in at least single precision."""
    precise = rows.to(torch.promote_types(rows.dtype, torch.float32))
    return torch.var_mean(precise.transpose(0, 1).flatten(1), dim=1, correction=0)
