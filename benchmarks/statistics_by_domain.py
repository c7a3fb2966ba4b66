"""Dual Student's adaptation with batch norm that sees the two domains apart.

    python benchmarks/statistics_by_domain.py [--epochs N] [--out FOLDER]

A batch of the recipe ``usps-mnist`` holds both domains, and batch norm normalizes it as one, as
the authors' program did. Here each domain is normalized by itself in every pass of the training,
as in French et al., Self-ensembling for visual domain adaptation, ICLR 2018, and the statistics
that are kept for the test are those of noisy target images.

The first epochs of 100, seed 0, like the row "As the recipe" of ``adaptation-settings.toml`` in
the cpu budget. So that training alone makes the difference, compare with what ``how_it_is_tested``
finds for that row with statistics of noisy target images.
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from dualstudent import Trainer, load_recipe
from how_it_is_tested import tested_differently
from progress import PrintedProgress
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


def normalize_by_domain(network: nn.Module, targets: int) -> None:
    for name, child in network.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(network, name, ByDomain(child, targets))
        else:
            normalize_by_domain(child, targets)


def training_by_domain(epochs: int) -> Trainer:
    changes = [f"schedule.epochs={epochs}", "schedule.cosine_epochs=100", "device.accelerator=cpu"]
    trainer = Trainer(load_recipe("usps-mnist", changes))
    batch = trainer.recipe.batch
    for student in trainer.method.students:  # of a batch, the unlabeled samples come first
        normalize_by_domain(student, targets=batch.size - batch.labeled)
    return trainer


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("runs/statistics-by-domain"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # as the runs that it is compared with
    trainer = training_by_domain(arguments.epochs)
    accuracies, progress = [], PrintedProgress("by domain", "steps")
    progress.on_start(0, trainer.total_steps)
    while not trainer.done:
        finished = trainer.advance()
        progress.on_step(trainer.state.step)
        if finished:
            networks = trainer.evaluator.evaluate(trainer.method.evaluated).networks
            found = {name: f"{100 - each.error:.2f}" for name, each in networks.items()}
            accuracies.append({"epoch": finished["epoch"]} | found)
            write_csv(arguments.out / "accuracy.csv", accuracies)
    tested = tested_differently(f"statistics by domain, {arguments.epochs} epochs", trainer)
    write_csv(arguments.out / "how-it-is-tested.csv", tested)


if __name__ == "__main__":
    main()
