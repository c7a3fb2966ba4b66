"""Dual Student's adaptation with batch norm that sees the two domains apart.

    python benchmarks/statistics_by_domain.py [--epochs N] [--out FILE.csv]

A batch of the recipe ``usps-mnist`` holds both domains, and batch norm normalises it as one, as
the authors' program did. Here each domain is normalised by itself in every pass of the training,
as in French et al., Self-ensembling for visual domain adaptation, ICLR 2018, and the statistics
that are kept for the test are those of the target. Compare with the row "As the recipe" of
``dualstudent reproduce benchmarks/adaptation-settings.toml --budget cpu``.
"""

import argparse
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor, nn
from torch.nn import functional

from dualstudent import load_recipe
from dualstudent.training.course import Course
from dualstudent.training.progress import progress_on
from dualstudent.training.training import Training
from how_it_is_tested import tested_differently
from tables import write_csv


class ByDomain(nn.Module):
    """Batch norm for batches whose first samples are of the target, the others of the source."""

    def __init__(self, layer: nn.BatchNorm2d, targets: int) -> None:
        super().__init__()
        self.layer, self.targets = layer, targets

    def forward(self, images: Tensor) -> Tensor:
        if not self.training:
            known: Tensor = self.layer(images)
            return known
        layer, source = self.layer, images[self.targets :]
        # Without running statistics, which are to be those of the target alone.
        apart = functional.batch_norm(
            source, None, None, layer.weight, layer.bias, training=True, eps=layer.eps
        )
        return torch.cat([layer(images[: self.targets]), apart])


def normalise_by_domain(network: nn.Module, targets: int) -> None:
    for name, child in network.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(network, name, ByDomain(child, targets))
        else:
            normalise_by_domain(child, targets)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("runs/statistics-by-domain.csv"))
    arguments = parser.parse_args()
    changes = [f"schedule.epochs={arguments.epochs}", "device.accelerator=cpu"]
    training = Training(load_recipe("usps-mnist", changes))
    batch = training.recipe.batch
    for student in training.method.students:
        normalise_by_domain(student, targets=batch.size - batch.labeled)
    course = Course(training)
    with progress_on(Console(), unit="steps") as progress:
        observer = progress.observer("by domain")
        observer.on_start(0, training.schedule.total_steps)
        while not course.done:
            course.advance()
            observer.on_step(course.step)
    write_csv(arguments.out, tested_differently("statistics by domain", training))


if __name__ == "__main__":
    main()
