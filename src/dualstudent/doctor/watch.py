"""Sees, between a method's losses and their backward pass, where each term arrives."""

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn

from dualstudent.batch import Batch
from dualstudent.doctor.anatomy import Part
from dualstudent.doctor.diagnosis import Reach
from dualstudent.methods import Method


class NothingToLearn(Exception):
    """No term of any student carries gradient, so there is nothing to run backward on."""


class Watch:
    """Hooks around the losses of a method, in which the ramp is 1 as long as it is watched.

    A term that has arrived at its student is not looked at again before :meth:`start_over`: a
    backward pass for each term makes a step several times as long.

    Args:
        method: whose steps are watched.
        students: their names, in order.
        parts: of all networks.
        remembered: how many of the latest batches to keep.

    Attributes:
        rate: the learning rate of the coming step; to be kept up to date by others.
        batches: the latest ones.
        seen: all that was observed, in its order.
        steps: how many were watched.
        strained: parameters with so much gradient that a step must change them.
        stale: whether there ever was gradient before backward was called.
    """

    def __init__(
        self, method: Method, students: Sequence[str], parts: Sequence[Part], remembered: int
    ) -> None:
        self.rate = 0.0
        self.batches: list[Batch] = []
        self.seen: list[Reach] = []
        self.steps = 0
        self.strained = set[nn.Parameter]()
        self.stale = False
        self._method, self._students, self._parts = method, students, parts
        self._parameters = [p for part in parts for p in part.parameters.values()]
        self._remembered = remembered
        self._arrived = set[tuple[str, str]]()

    def __enter__(self) -> Self:
        self._hooks = (
            self._method.register_forward_pre_hook(self._before),
            self._method.register_forward_hook(self._after),
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for hook in self._hooks:
            hook.remove()

    def start_over(self) -> None:
        """Look at every term anew, also at those that have arrived."""
        self._arrived.clear()

    def _before(self, _: nn.Module, arguments: tuple[Any, ...]) -> tuple[Batch, float]:
        batch: Batch = arguments[0]
        self.batches = [*self.batches, batch][-self._remembered :]
        return batch, 1.0

    def _after(self, _: nn.Module, __: Any, losses: list[dict[str, Tensor]]) -> None:
        self.steps += 1
        self.stale |= any(p.grad is not None and bool(p.grad.any()) for p in self._parameters)
        for student, terms in zip(self._students, losses, strict=True):
            for term, value in terms.items():
                if (student, term) not in self._arrived:
                    self._look_at(student, term, value)
        if not any(value.requires_grad for terms in losses for value in terms.values()):
            raise NothingToLearn

    def _look_at(self, student: str, term: str, value: Tensor) -> None:
        gradients = _gradients(value, self._parameters)
        reach = _reach(student, term, value, gradients, self._parts)
        self.seen.append(reach)
        if reach.arrives:
            self._arrived.add((student, term))
        self.strained |= {p for p, g in gradients.items() if _shows(p.detach(), self.rate * g)}


def _gradients(term: Tensor, parameters: Iterable[nn.Parameter]) -> dict[nn.Parameter, Tensor]:
    """For those parameters that the term depends on; its graph is kept."""
    wanted = [p for p in parameters if p.requires_grad]
    if not (term.requires_grad and wanted):
        return {}
    found = torch.autograd.grad(term, wanted, retain_graph=True, allow_unused=True)
    return {p: gradient for p, gradient in zip(wanted, found, strict=True) if gradient is not None}


def _reach(
    student: str,
    term: str,
    value: Tensor,
    gradients: Mapping[nn.Parameter, Tensor],
    parts: Iterable[Part],
) -> Reach:
    norms: dict[str, dict[str, float]] = {}
    connected = False
    for part in parts:
        found = [gradients[p] for p in part.parameters.values() if p in gradients]
        connected |= part.network == student and bool(found)
        norm = torch.stack([g.float().norm() for g in found]).norm().item() if found else 0.0
        if norm != 0:
            norms.setdefault(part.network, {})[part.name] = norm
    return Reach(student, term, value.item(), norms, connected)


def _shows(parameter: Tensor, change: Tensor) -> bool:
    """Far above rounding: biases in front of a batch norm have gradients that are nothing else."""
    return bool((parameter - 0.01 * change != parameter).any())
