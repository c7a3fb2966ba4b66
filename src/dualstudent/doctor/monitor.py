"""Records which parameters the gradient of each loss term reaches."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn

from dualstudent.batch import Batch, find_targets
from dualstudent.doctor.diagnosis import Reach
from dualstudent.doctor.parts import Part
from dualstudent.methods import Method
from dualstudent.networks.domains import BatchNormByDomain


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

    Attributes:
        learning_rate: of the next step; set by the caller.
        observations: of all terms, in order.
        steps: number of steps so far.
        must_move: parameters whose gradient is large enough that a step must change them.
        has_stale_gradient: whether there ever was a gradient before backward.
    """

    def __init__(self, method: Method, students: Sequence[str], parts: Sequence[Part]) -> None:
        self.learning_rate = 0.0
        self.observations: list[Reach] = []
        self.steps = 0
        self.must_move = set[nn.Parameter]()
        self.has_stale_gradient = False
        self._method, self._students, self._parts = method, students, parts
        self._parameters = [p for part in parts for p in part.parameters.values()]
        self._reached = set[tuple[str, str]]()
        self._by_domain = any(isinstance(each, BatchNormByDomain) for each in method.modules())
        self._views: tuple[Tensor, ...] = ()  # with the marks of their domains

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
        if self._by_domain:
            self._views = tuple(view.detach().requires_grad_() for view in batch.views)
            batch = replace(batch, views=self._views)
        return batch, 1.0

    def _after(self, _: nn.Module, __: Any, losses: list[dict[str, Tensor]]) -> None:
        self.steps += 1
        self.has_stale_gradient |= any(
            p.grad is not None and bool(p.grad.any()) for p in self._parameters
        )
        for student, terms in zip(self._students, losses, strict=True):
            for term, value in terms.items():
                if (student, term) not in self._reached:
                    self._check_term(student, term, value)
        if not any(value.requires_grad for terms in losses for value in terms.values()):
            raise NothingToLearn

    def _check_term(self, student: str, term: str, value: Tensor) -> None:
        gradients = _compute_gradients(value, self._parameters)
        reach = _measure_reach(student, term, value, gradients, self._parts)
        reach = replace(reach, domains=_find_domains(value, self._views))
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


def _find_domains(term: Tensor, views: Sequence[Tensor]) -> frozenset[str]:
    """Find the domains of the rows of marked views that the term depends on."""
    if not (term.requires_grad and views):
        return frozenset()
    found = torch.autograd.grad(term, views, retain_graph=True, allow_unused=True)
    domains = set[str]()
    for view, gradient in zip(views, found, strict=True):
        if gradient is not None:
            targets = find_targets(view, view.shape[1] - 1)[gradient.flatten(1).any(dim=1)]
            domains |= {"target" if of_target else "source" for of_target in targets.tolist()}
    return frozenset(domains)


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
