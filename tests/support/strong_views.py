"""Batches of points with weak and strong views, and the pseudo-labels of a method in NumPy."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from dualstudent.batch import Batch
from dualstudent.generators import seeded_rng
from dualstudent.methods import Method, Task
from tests.support.linear_student import Array, LinearSoftmax, probabilities

UNLABELED, CLASSES = 12, 3
KNOWN = [0, 2, 1, 0]
SAMPLES = 40  # of which the last are labeled
TASK = Task(
    epochs=9,
    samples=SAMPLES,
    classes=CLASSES,
    image_shape=(5,),
    value_range=1,
    unlabeled=SAMPLES - len(KNOWN),
    label_counts=(2, 1, 1),
)


@dataclass
class Step:
    """A batch, and what the student says: q of weak views, p of strong ones, and of labeled."""

    batch: Batch
    q: Array
    p: Array
    labeled: Array
    indices: NDArray[np.int64]

    def cross_entropy(self, answers: NDArray[np.int64]) -> Array:
        return np.asarray(-np.log(self.p[np.arange(len(answers)), answers]))


def strong_batch(step: int) -> Batch:
    """12 of 36 unlabeled points, and the 4 labeled ones."""
    with seeded_rng("weak and strong", step):
        weak = 1.5 * torch.randn(UNLABELED + len(KNOWN), 5, dtype=torch.float64)
        strong = weak[:UNLABELED] + 0.5 * torch.randn(UNLABELED, 5, dtype=torch.float64)
        unlabeled = torch.randperm(SAMPLES - len(KNOWN))[:UNLABELED]
    labels = torch.tensor([-1] * UNLABELED + KNOWN)
    indices = torch.cat((unlabeled, torch.arange(SAMPLES - len(KNOWN), SAMPLES)))
    return Batch((weak, strong), labels, indices=indices)


def take_steps(method: Method, count: int = 6) -> Iterator[Step]:
    """Batches for a student that becomes surer from step to step."""
    student = method.students[0]
    assert isinstance(student, LinearSoftmax)
    for number in range(count):
        batch = strong_batch(number)
        weak, strong = (view.numpy() for view in batch.views)
        said = probabilities(weak @ student.w.T)
        yield Step(
            batch,
            said[:UNLABELED],
            probabilities(strong @ student.w.T),
            said[UNLABELED:],
            batch.indices[:UNLABELED].numpy(),
        )
        with torch.no_grad():
            student.weight.mul_(1.15)


def terms_of(method: Method, batch: Batch, ramp: float = 1.0) -> dict[str, float]:
    (loss,) = method.losses(batch, ramp)
    return {name: term.item() for name, term in loss.terms.items()}


def assert_state_is_complete(method: Method, begun: Method) -> None:
    """``begun`` gives the same losses as ``method`` once it has its state, and not before."""
    batch = strong_batch(99)
    begun.students.load_state_dict(method.students.state_dict())
    forgetful = terms_of(copy.deepcopy(begun), batch)
    begun.load_state_dict(method.state_dict())
    assert terms_of(begun, batch) == terms_of(method, batch) != forgetful
