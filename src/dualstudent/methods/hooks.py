"""Notices a training loop that does not tell its method what it must know.

A teacher moves after each step, an average of predictions after each epoch. A loop of one's own
that forgets the hook would run without an error and learn less, or nothing. Loops differ, so the
limits are wide: one that calls the hooks is not refused, one that does not is, a little later.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from dualstudent.batch import Batch
from dualstudent.errors import UserError
from dualstudent.methods.faults import check_views, compute_losses

if TYPE_CHECKING:
    from dualstudent.methods.method import Method, Task

Kind = TypeVar("Kind", bound="Method")

_MOST_STEPS = 10  # of optimizers, each after other losses, without after_step
_USUAL_PASSES, _MOST_PASSES = 3, 100  # over the unlabeled samples, without any after_epoch


class HookWatch:
    """What a method was told, and what its loop did meanwhile.

    It reads no tensor, except for the size of batches until an epoch has ended.

    Attributes:
        task: what the method was told before training; None if it was not.
        is_inside: whether losses are being computed.
    """

    def __init__(self) -> None:
        self.task: Task | None = None
        self._has_stepped = False  # an optimizer, since the last losses
        self._steps = 0  # of optimizers, without after_step
        self._rows = 0  # of unlabeled samples, without any after_epoch
        self._ends_epochs = self._has_warned = False
        self.is_inside = False

    @contextmanager
    def expect_hooks(self, method: "Method", batch: Batch) -> Iterator[None]:
        """Check what should have been called before the losses of a batch.

        Raises:
            UserError: if a hook that the method overrides was not called.
        """
        if method.training and torch.is_grad_enabled():  # else somebody only looks
            self._check_begun(method)
            self._check_step(method)
            self._check_epoch(method, batch)
        self.is_inside = True
        try:
            yield
        finally:
            self.is_inside = False

    def note(self, hook: str, first: Any) -> None:
        """Note that a hook was called, with this argument."""
        if hook == "begin":
            self.task = first
        elif hook == "after_step":
            self._has_stepped, self._steps = False, 0
        elif hook == "after_epoch":
            self._ends_epochs = True

    def note_step(self) -> None:
        """Note that an optimizer of the students has taken a step."""
        self._has_stepped = True

    def _check_begun(self, method: "Method") -> None:
        if self.task is None and _overrides(method, "begin"):
            raise UserError(
                f"{method.settings.name}: begin() was not called; call method.begin(Task(epochs, "
                "samples, classes, image_shape, value_range)) once before training"
            )

    def _check_step(self, method: "Method") -> None:
        if not _overrides(method, "after_step"):
            return
        self._follow_optimizers(method)
        self._steps += self._has_stepped
        self._has_stepped = False
        if self._steps >= _MOST_STEPS:
            raise UserError(
                f"{method.settings.name}: the optimizer took {self._steps} steps, but after_step() "
                "was not called; call method.after_step(step) after every optimizer.step()"
            )

    def _follow_optimizers(self, method: "Method") -> None:
        """Be told of their steps; again if the method is a copy, or another had its students."""
        first = next(method.students.parameters(), None)
        if first is not None and _watches.get(id(first)) is not self:
            _watches.update((id(parameter), self) for parameter in method.students.parameters())

    def _check_epoch(self, method: "Method", batch: Batch) -> None:
        if self.task is None or self._ends_epochs or not _overrides(method, "after_epoch"):
            return
        self._rows += int(batch.unlabeled.sum())
        passes = (self._rows - len(batch)) / (self.task.unlabeled or self.task.samples)
        if passes <= _USUAL_PASSES or (self._has_warned and passes <= _MOST_PASSES):
            return
        text = (
            f"{method.settings.name}: {int(passes)} passes over the samples are over, but "
            "after_epoch() was not called; call method.after_epoch(epoch, batches) after each epoch"
        )
        if passes > _MOST_PASSES:
            raise UserError(text)
        warnings.warn(text, stacklevel=5)
        self._has_warned = True


_watches: WeakValueDictionary[int, HookWatch] = WeakValueDictionary()  # by id of parameters


def _note_step(optimizer: Optimizer, arguments: object, named: object) -> None:
    if torch.compiler.is_compiling():
        return
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if (watch := _watches.get(id(parameter))) is not None:
                watch.note_step()
                break  # the rest of the group is of the same students


register_optimizer_step_post_hook(_note_step)  # all optimizers of the process, as loops own them


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
        if method.hooks.is_inside:  # a method that asks its base class
            return losses(method, batch, ramp)
        check_views(method, batch)
        with method.hooks.expect_hooks(method, batch):
            return compute_losses(losses, method, batch, ramp)

    return checked


def _overrides(method: "Method", hook: str) -> bool:
    """Whether a class below Method, which has all hooks, has its own."""
    return sum(hook in vars(kind) for kind in type(method).__mro__) > 1
