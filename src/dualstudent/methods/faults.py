"""Says in one line what is wrong with a batch, where torch fails far from the cause or not at all.

What costs microseconds is checked in every step. Values are looked at only after something has
gone wrong, since a step on a GPU must not wait for them.
"""

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dualstudent.batch import Batch, describe
from dualstudent.errors import UserError

_CAST = (torch.float16, torch.bfloat16, torch.float32)  # by mixed precision

if TYPE_CHECKING:
    from dualstudent.methods.method import Method, StudentLoss

    Losses = Callable[[Method, Batch, float], list[StudentLoss]]


def check_views(method: "Method", batch: Batch) -> None:
    """Check that a batch has the views that a method asks for, of as many samples.

    Raises:
        UserError: otherwise.
    """
    name, wanted = method.settings.name, method.views
    if not isinstance(batch, Batch):
        raise UserError(f"{name}: losses() needs a dualstudent.Batch, not a {type(batch).__name__}")
    if len(batch.views) < (count := max(map(len, wanted))):
        raise UserError(
            f"{name}: the batch has {len(batch.views)} view(s), not {count}; labeled samples need "
            f"{wanted.labeled}, unlabeled ones {wanted.unlabeled}"
        )
    of_all = min(map(len, wanted)) or len(wanted.labeled)
    for number, view in enumerate(batch.views[:of_all], start=1):
        if len(view) != len(batch):
            raise UserError(f"{name}: view {number} has {len(view)} row(s) for {len(batch)} labels")


def compute_losses(
    losses: "Losses", method: "Method", batch: Batch, ramp: float
) -> "list[StudentLoss]":
    """Compute the losses of a batch, and explain a failure by what is in it.

    Raises:
        UserError: if they fail because of the batch, or on a CPU are not finite because of it; if
            they are no scalars, one :class:`StudentLoss` for each student.
    """
    try:
        found = losses(method, batch, ramp)
    except UserError:
        raise
    except (IndexError, RuntimeError, TypeError, ValueError) as error:  # of torch
        if len(batch) and (fault := next(_find_faults(method, batch), None)):
            said = f"{type(error).__name__}: {error}".splitlines()[0]
            raise UserError(f"{method.settings.name}: {fault} ({said})") from error
        raise
    if not _are_finite(_list_terms(method, found)) and (
        fault := next(_find_infinite(method, batch), None)
    ):
        raise UserError(f"{method.settings.name}: the loss is not finite, as {fault}")
    return found


def _list_terms(method: "Method", found: "list[StudentLoss]") -> list[Tensor]:
    """List the terms of all losses; a method of others may return anything."""
    name, count = method.settings.name, len(method.students)
    if (
        not isinstance(found, list | tuple)
        or [hasattr(loss, "terms") for loss in found] != [True] * count
    ):
        raise UserError(
            f"{name}: losses() must return a list of {count} StudentLoss, one a student"
        )
    for loss in found:
        for term, value in loss.terms.items():
            if not isinstance(value, Tensor) or value.dim() > 0:
                raise UserError(
                    f"{name}: the term {term!r} must be a scalar, such as a mean over the batch, "
                    f"not {describe(value)}"
                )
    return [term for loss in found for term in loss.terms.values()]


def _are_finite(terms: list[Tensor]) -> bool:
    """Whether all are, as far as that is known without waiting for a GPU."""
    if torch.compiler.is_compiling():
        return True
    try:
        return all(math.isfinite(term.item()) for term in terms if term.device.type == "cpu")
    except RuntimeError:  # mapped by torch.func or traced: there are no numbers yet
        return True


def _find_infinite(method: "Method", batch: Batch) -> Iterator[str]:
    """Find what makes losses infinite, or no numbers."""
    for number, view in enumerate(batch.views, start=1):
        if not bool(view.isfinite().all()):
            yield f"view {number} has values that are not"
    if method.views.unlabeled and not batch.unlabeled.any():
        yield "the batch has no sample without a label (−1)"


def _find_faults(method: "Method", batch: Batch) -> Iterator[str]:
    """Find what makes the computation of losses fail."""
    task, unlabeled = method.hooks.task, int(batch.unlabeled.sum())
    lowest, highest = int(batch.labels.min()), int(batch.labels.max())
    for classes in method.widths:  # one, if any
        if lowest < -1 or highest >= classes:
            yield f"labels go from {lowest} to {highest}, not from 0 to {classes - 1} (−1: unknown)"
        if task is not None and task.classes != classes:
            yield f"students return {classes} classes, but begin() was told of {task.classes}"
    shapes = [tuple(view.shape[1:]) for view in batch.views]
    if len(set(shapes)) > 1:
        yield f"views have samples of different shapes, {' and '.join(map(str, shapes))}"
    if task is not None:
        channels, *size = told = task.image_shape
        if shapes[0] not in (told, (channels + 1, *size)):  # one more marks domains
            yield f"samples have the shape {shapes[0]}, but begin() was told of {told}"
        if (index := int(batch.indices.max())) >= task.samples:
            yield f"there is an index {index}, but begin() was told of {task.samples} samples"
    weight = next((p for p in method.students.parameters() if p.is_floating_point()), None)
    for number, view in enumerate(batch.views, start=1):
        if len(view) not in (len(batch), unlabeled, len(batch) - unlabeled):
            yield f"view {number} has {len(view)} row(s) for {unlabeled} unlabeled samples"
        if weight is not None and not _fits(view, weight):
            kinds = [f"{each.dtype} on {each.device}" for each in (view, weight)]
            yield f"view {number} is {kinds[0]}, the weights of the students are {kinds[1]}"


def _fits(view: Tensor, weight: Tensor) -> bool:
    """Whether a network can take the view; mixed precision takes other floats but doubles, too."""
    mixed = torch.is_autocast_enabled(weight.device.type) and view.dtype in _CAST
    return view.device == weight.device and (mixed or view.dtype == weight.dtype)
