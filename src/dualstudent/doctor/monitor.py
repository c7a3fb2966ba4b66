"""Records which parameters the gradient of each loss term reaches."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn

from dualstudent.batch import Batch
from dualstudent.doctor.diagnosis import Reach
from dualstudent.doctor.domains import DomainTrace
from dualstudent.doctor.parts import Part
from dualstudent.methods import Method


class NothingToLearn(Exception):
    """No loss term requires gradient, so that backward would fail."""


class GradientMonitor:
    """Hooks on the losses of a method; while entered, all terms are fully ramped up.

    A backward pass for each term is slow, so a term that has reached its student is not checked
    again before :meth:`reset`.

    Args:
        method: to monitor.
        students: their names, in order.
        parts: of all networks.
        two_domains: whether the data have two domains.

    Attributes:
        learning_rate: of the next step; set by the caller.
        observations: of all terms, in order.
        steps: number of steps so far.
        must_move: parameters whose gradient is large enough that a step must change them.
        has_stale_gradient: whether there ever was a gradient before backward.
    """

    def __init__(
        self, method: Method, students: Sequence[str], parts: Sequence[Part], two_domains: bool
    ) -> None:
        self.learning_rate = 0.0
        self.observations: list[Reach] = []
        self.steps = 0
        self.must_move = set[nn.Parameter]()
        self.has_stale_gradient = False
        self._method, self._students, self._parts = method, students, parts
        self._parameters = [p for part in parts for p in part.parameters.values()]
        self._reached = set[tuple[str, str]]()
        self._two_domains = two_domains
        self._trace: DomainTrace | None = None  # of the current step

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

    def reset(self) -> None:
        """Check all terms again."""
        self._reached.clear()

    def _before(self, _: nn.Module, arguments: tuple[Any, ...]) -> tuple[Batch, float]:
        batch: Batch = arguments[0]
        if self._two_domains:
            self._trace = DomainTrace(self._method, batch, self)
        return batch, 1.0

    def _after(self, _: nn.Module, __: Any, losses: list[dict[str, Tensor]]) -> None:
        self.steps += 1
        self.has_stale_gradient |= any(
            p.grad is not None and bool(p.grad.any()) for p in self._parameters
        )
        for number, terms in enumerate(losses):
            for term, value in terms.items():
                if (self._students[number], term) not in self._reached:
                    self._check_term(number, term, value)
        self._trace = None
        if not any(value.requires_grad for terms in losses for value in terms.values()):
            raise NothingToLearn

    def _check_term(self, number: int, term: str, value: Tensor) -> None:
        student = self._students[number]
        gradients = _compute_gradients(value, self._parameters)
        reach = _measure_reach(student, term, value, gradients, self._parts)
        if self._trace is not None:
            reach = replace(reach, domains=self._trace.find_domains(number, term))
        self.observations.append(reach)
        if reach.reaches_student:
            self._reached.add((student, term))
        self.must_move |= {
            p for p, g in gradients.items() if _is_visible(p.detach(), self.learning_rate * g)
        }


def _compute_gradients(
    term: Tensor, parameters: Iterable[nn.Parameter]
) -> dict[nn.Parameter, Tensor]:
    """Gradients of the parameters that the term depends on; keeps its graph."""
    wanted = [p for p in parameters if p.requires_grad]
    if not (term.requires_grad and wanted):
        return {}
    found = torch.autograd.grad(term, wanted, retain_graph=True, allow_unused=True)
    return {p: gradient for p, gradient in zip(wanted, found, strict=True) if gradient is not None}


def _measure_reach(
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


def _is_visible(parameter: Tensor, change: Tensor) -> bool:
    """Whether 1 % of the change is above rounding; biases before a batch norm have only noise."""
    return bool((parameter - 0.01 * change != parameter).any())
