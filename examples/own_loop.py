"""A network, data loaders, optimizers and a loop of your own; only the method is the library's.

    python examples/own_loop.py

Real MNIST digits, 50 labels, the rest unlabeled. The loop calls all hooks that methods have, so
that another method that sees two weak views, such as `MeanTeacher` with its one student, can take
the place of `DualStudent`.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from dualstudent import (
    Batch,
    DualStudent,
    DualStudentSettings,
    Task,
    as_student,
    choose_images,
    cosine,
    load_mnist_5k,
    rampup,
)

EPOCHS, SEED, LABELED, UNLABELED = 10, 0, 32, 96
Sample = tuple[Tensor, Tensor, int, int]


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.around = nn.Conv2d(inputs, outputs, 1, stride=2)
        self.through = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride=2, padding=1),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1),
            nn.BatchNorm2d(outputs),
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.around(x) + self.through(x))


class ResNet(nn.Sequential):
    """A small ResNet without its last layer: images (B, 1, H, W) to features (B, 64)."""

    def __init__(self) -> None:
        pool = (nn.AdaptiveAvgPool2d(1), nn.Flatten())
        super().__init__(Block(1, 16), Block(16, 32), Block(32, 64), *pool)


class TwoViews(Dataset[Sample]):
    """Two random views, the label, -1 where unknown, and the index of each image."""

    def __init__(self, images: Tensor, labels: Tensor, indices: Tensor) -> None:
        self.images, self.labels, self.indices = images, labels, indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, position: int) -> Sample:
        index = int(self.indices[position])
        view1, view2 = (self.perturb(self.images[index]) for _ in range(2))
        return view1, view2, int(self.labels[index]), index

    @staticmethod
    def perturb(image: Tensor) -> Tensor:
        shift = torch.randint(-2, 3, (2,)).tolist()
        return image.roll(shift, dims=(1, 2)) + 0.15 * torch.randn_like(image)


def repeat(loader: DataLoader[Sample]) -> Iterator[list[Tensor]]:
    while True:
        yield from loader


def make_batches() -> Iterator[Batch]:
    """One pass over the unlabeled images, which come first in every batch."""
    for pairs in zip(unlabeled, with_label, strict=False):
        view1, view2, given, indices = (torch.cat(pair) for pair in zip(*pairs, strict=True))
        yield Batch((view1, view2), given, indices=indices)


torch.manual_seed(SEED)
train, test = load_mnist_5k("train"), load_mnist_5k("test")
images, test_images = (part.pixels / 127.5 - 1 for part in (train, test))
chosen = choose_images(train, 50, SEED)
labels = torch.full_like(train.labels, -1)
labels[chosen] = train.labels[chosen]
rest = (labels < 0).nonzero().flatten()
few = min(LABELED, len(chosen))  # also with fewer labels than that
labeled = DataLoader(TwoViews(images, labels, chosen), few, shuffle=True, drop_last=True)
unlabeled = DataLoader(TwoViews(images, labels, rest), UNLABELED, shuffle=True, drop_last=True)

students = [as_student(ResNet(), features=64, classes=10) for _ in range(2)]
method = DualStudent(students, DualStudentSettings(consistency_weight=10, stabilization_weight=100))
optimizers = [torch.optim.SGD(s.parameters(), lr=0.1, momentum=0.9) for s in students]
method.begin(Task(EPOCHS, len(images), 10, tuple(images.shape[1:]), 2.0, unlabeled=len(rest)))

step, total = 0, EPOCHS * len(unlabeled)
with_label = repeat(labeled)
for epoch in range(EPOCHS):
    for batch in make_batches():
        method.before_step()
        terms = method.losses(batch, ramp=rampup(epoch, length=5))
        torch.autograd.backward([loss.total for loss in terms])
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = 0.1 * cosine(step / total)
            optimizer.step()
            optimizer.zero_grad()
        method.after_step(step)
        step += 1
    method.after_epoch(epoch, make_batches())  # made only if the method looks at them

    method.eval()
    with torch.no_grad():
        for name, network in method.evaluated.items():
            wrong = network(test_images).class_logits.argmax(dim=1) != test.labels
            print(f"epoch {epoch + 1}: test error of {name} {100 * wrong.float().mean():.1f} %")
    method.train()
