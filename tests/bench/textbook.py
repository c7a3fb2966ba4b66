"""Dual Student as one would write it first: Pillow for each image, loops over students and samples.

It is slow on purpose, to compare with; ``make bench`` measures it. Algorithm 1 and Eq. 3
to 7 of the paper, with the same networks, batches and optimizers as the recipe ``digits``.
"""

import random
from collections.abc import Iterator

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

SHIFT, THRESHOLD, CONSISTENCY, STABILIZATION = 2, 0.8, 10.0, 100.0


class Digits(Dataset[tuple[Tensor, Tensor, int]]):
    """Two shifted views of each image, and its label, −1 where unknown."""

    def __init__(self, pixels: Tensor, labels: Tensor) -> None:
        self.images = [Image.fromarray(each[0].numpy()) for each in pixels]
        self.labels = labels.tolist()

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, int]:
        return self._view(index), self._view(index), self.labels[index]

    def _view(self, index: int) -> Tensor:
        image = self.images[index]
        right, down = (random.randint(-SHIFT, SHIFT) for _ in range(2))
        moved = image.transform(image.size, Image.Transform.AFFINE, (1, 0, right, 0, 1, down))
        values = torch.from_numpy(np.array(moved)).float() / 255
        return ((values - 0.5) / 0.5)[None]


def load_batches(pixels: Tensor, labels: Tensor, size: int, labeled: int) -> Iterator[list[Tensor]]:
    """Batches of views and labels without end, of which some have a label."""
    known = Digits(pixels[labels >= 0], labels[labels >= 0])
    unknown = Digits(pixels[labels < 0], labels[labels < 0])
    while True:
        first = DataLoader(unknown, size - labeled, shuffle=True, drop_last=True)
        second = iter(DataLoader(known, labeled, shuffle=True, drop_last=True))
        for part in first:
            other = next(second, None)
            if other is None:
                second = iter(DataLoader(known, labeled, shuffle=True, drop_last=True))
                other = next(second)
            yield [torch.cat(pair) for pair in zip(part, other, strict=True)]


def is_stable(p: Tensor, other: Tensor) -> bool:
    confident = bool(p.max() > THRESHOLD) or bool(other.max() > THRESHOLD)
    return confident and int(p.argmax()) == int(other.argmax())


def take_step(
    students: list[nn.Module], optimizers: list[torch.optim.Optimizer], batch: list[Tensor]
) -> None:
    """One step of Algorithm 1."""
    first, second, labels = batch
    views = [(first, second), (second, first)]
    own = [student(view) for student, (view, _) in zip(students, views, strict=True)]
    with torch.no_grad():
        swapped = [student(view) for student, (_, view) in zip(students, views, strict=True)]
    for number, optimizer in enumerate(optimizers):
        loss = torch.zeros(())
        for row, label in enumerate(labels.tolist()):
            mine, other = own[number], own[1 - number]
            if label >= 0:
                loss = loss + F.cross_entropy(mine.class_logits[row], torch.tensor(label))
            target = swapped[number].class_logits[row].softmax(0)
            p = mine.consistency_logits[row].softmax(0)
            loss = loss + CONSISTENCY * (p - target).square().mean()
            loss = loss + 0.01 * F.mse_loss(mine.class_logits[row], mine.consistency_logits[row])
            if label >= 0:
                continue
            stable, unstable = [], []
            for student in (number, 1 - number):
                pair = [
                    each[student].class_logits[row].detach().softmax(0) for each in (own, swapped)
                ]
                stable.append(is_stable(*pair))
                unstable.append(float((pair[0] - pair[1]).square().mean()))
            if stable[1] and (not stable[0] or unstable[0] > unstable[1]):
                guide = other.class_logits[row].detach().softmax(0)
                loss = loss + STABILIZATION * (p - guide).square().mean()
        optimizer.zero_grad()
        (loss / len(labels)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
