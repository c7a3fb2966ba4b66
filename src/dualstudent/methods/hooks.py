"""Notices a training loop that does not tell its method what it must know.

A teacher moves after each step, an average of predictions after each epoch. A loop of one's own
that forgets the hook would run without an error and learn less, or nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from dualstudent.batch import Batch
from dualstudent.errors import UserError

if TYPE_CHECKING:
    from dualstudent.methods.method import Method, Task

Kind = TypeVar("Kind", bound="Method")

_MOST_PASSES = 2  # over the unlabeled samples, without the end of an epoch


class Weights:
    """Tells whether the weights of the students have changed, without a copy of them."""

    def __init__(self, method: "Method") -> None:
        weights = [parameter.detach() for parameter in method.students.parameters()]
        self._versions = [weight._version for weight in weights]
        self._norms = torch._foreach_norm(weights)

    def are_those_of(self, other: "Weights") -> bool:
        if self._versions != other._versions:
            return False
        # Fused optimizers change values, but no version.
        return all(map(torch.equal, self._norms, other._norms))


class HookWatch:
    """What a method was told, and what its loop did meanwhile."""

    def __init__(self) -> None:
        self._task: Task | None = None
        self._weights: Weights | None = None  # at the last losses, until after_step is called
        self._rows = 0  # unlabeled samples seen in this epoch
        self._inside = False

    @contextmanager
    def expect_hooks(self, method: "Method", batch: Batch) -> Iterator[None]:
        """Check what should have been called before the losses of a batch.

        Raises:
            UserError: if a hook that the method overrides was not called.
        """
        if self._inside:  # a method that asks its base class
            yield
            return
        self._check_begun(method)
        if method.training and torch.is_grad_enabled():  # else somebody only looks
            self._check_step(method)
            self._check_epoch(method, batch)
        self._inside = True
        try:
            yield
        finally:
            self._inside = False

    def note(self, hook: str, first: Any) -> None:
        """Note that a hook was called, with this argument."""
        if hook == "begin":
            self._task = first
        elif hook == "after_step":
            self._weights = None
        elif hook == "after_epoch":
            self._rows = 0

    def _check_begun(self, method: "Method") -> None:
        if self._task is None and (
            _overrides(method, "begin") or _overrides(method, "after_epoch")
        ):
            raise UserError(
                f"{method.settings.name}: begin() was not called; call method.begin(Task(epochs, "
                "samples, classes, image_shape, value_range)) once before training"
            )

    def _check_step(self, method: "Method") -> None:
        if not _overrides(method, "after_step"):
            return
        now = Weights(method)
        if self._weights is not None and not self._weights.are_those_of(now):
            raise UserError(
                f"{method.settings.name}: the weights have changed, but after_step() was not "
                "called; call method.after_step(step) after every optimizer.step()"
            )
        self._weights = now

    def _check_epoch(self, method: "Method", batch: Batch) -> None:
        if self._task is None or not _overrides(method, "after_epoch"):
            return
        self._rows += int(batch.unlabeled.sum())
        if self._rows > _MOST_PASSES * (self._task.unlabeled or self._task.samples) + len(batch):
            raise UserError(
                f"{method.settings.name}: {_MOST_PASSES} passes over the samples are over, but "
                "after_epoch() was not called; call method.after_epoch(epoch, batches) after each"
            )


def watch_hooks(kind: "type[Kind]") -> "type[Kind]":
    """Let a class of methods tell its :class:`HookWatch` when a hook is called."""
    for hook in ("begin", "after_step", "after_epoch"):
        if hook in vars(kind):
            setattr(kind, hook, _note_call(hook, vars(kind)[hook]))
    if "losses" in vars(kind):
        kind.losses = _check_before(vars(kind)["losses"])  # type: ignore[method-assign]
    return kind


def _note_call(hook: str, function: Callable[..., None]) -> Callable[..., None]:
    @wraps(function)
    def noted(method: "Method", *arguments: Any, **named: Any) -> None:
        function(method, *arguments, **named)
        method.hooks.note(hook, next(iter((*arguments, *named.values()))))

    return noted


def _check_before(losses: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(losses)
    def checked(method: "Method", batch: Batch, ramp: float) -> Any:
        with method.hooks.expect_hooks(method, batch):
            return losses(method, batch, ramp)

    return checked


def _overrides(method: "Method", hook: str) -> bool:
    """Whether a class below Method, which has all hooks, has its own."""
    return sum(hook in vars(kind) for kind in type(method).__mro__) > 1
