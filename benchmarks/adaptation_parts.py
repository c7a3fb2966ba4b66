"""What does each part of the recipe usps-mnist-best gain? One is taken away at a time.

    python benchmarks/adaptation_parts.py       # about 15 minutes of one core a seed

Both students learn USPS as in the recipe, then adapt for one epoch over every second training image
of MNIST. Parts of the source stage are taken away before it, the others from the same start. Beside
the accuracy on the MNIST test images, which chooses nothing here, the shares that can be measured
without its labels. It can be stopped at any time and continues when called again. Writes
`results/adaptation/`.
"""

import argparse
from functools import cache
from typing import Any, NamedTuple

import torch

from choose_adaptation import RESULTS, describe, measure_without_labels, run
from dualstudent import Predictions, Trainer, predict, prepare
from tables import run_trials, spread, spread_of_differences, write_table

COLUMNS = ("accuracy", "confident", "agree", "rarest", "reverse")
NARROW = "transforms.strong.affine=[12, 0.15, 0.15, 0.07]"


class Part(NamedTuple):
    """Changes that take a part away: of the source stage as well, or of the target stage only."""

    source: tuple[str, ...] = ()
    target: tuple[str, ...] = ()


WHOLE = "nothing taken away"
PARTS = {
    WHOLE: Part(),
    "no adaptation": Part(),
    "wide views of the source": Part((NARROW,)),
    "RandAugment of the source": Part(("transforms.strong.randaugment=0",)),
    "batch norm by domain": Part(("network.batch_norm=together",)),
    "averaged weights": Part((), ("ema.decay=0.001",)),
    "affine views of the target": Part((), ("transforms.weak.affine=[0, 0, 0, 0.07]",)),
    "stabilization": Part((), ("method.stabilization_weight=0",)),
    "consistency": Part((), ("method.consistency_weight=0",)),
    "entropy": Part((), ("method.entropy_weight=0",)),
    "entropy of the mean": Part((), ("method.balance_weight=0",)),
    "labels by centroids": Part((), ("method.pseudo_label_weight=0",)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = range(parser.parse_args().seeds)
    torch.set_num_threads(1)
    trials = [{"seed": seed, "part": part} for seed in seeds for part in PARTS]
    write_results(run_trials(RESULTS / "parts.csv", trials, measure))


def measure(seed: int, part: str) -> dict[str, str]:
    source, target = PARTS[part]
    trainer = learn_source(seed, source)
    if part != "no adaptation":
        recipe = describe((f"seed={seed}", *source, *target)).model_copy(update={"stages": ()})
        trainer, _ = run(recipe, list(trainer.method.averages.values()))
    return {"accuracy": f"{compute_accuracy(trainer):.4f}"} | measure_without_labels(trainer)


@cache
def learn_source(seed: int, changes: tuple[str, ...]) -> Trainer:
    return run(describe((f"seed={seed}", *changes)).split_stages()[0])[0]


def compute_accuracy(trainer: Trainer) -> float:
    """Mean accuracy of the students on the test images of MNIST."""
    recipe = trainer.recipe
    data = prepare(recipe.data, recipe.seed, recipe.transforms, recipe.normalization)
    everything = torch.arange(len(data.test_labels))
    found = Predictions.join(predict(trainer.method, data.test, everything, 0, "cpu"))
    return float((found.labels == data.test_labels[:, None]).float().mean())


def write_results(rows: list[dict[str, Any]]) -> None:
    def select(part: str, column: str) -> list[float]:
        return [100 * float(row[column]) for row in rows if row["part"] == part]

    table = [
        [
            part,
            *(spread(select(part, column)) for column in COLUMNS),
            spread_of_differences(select(part, "accuracy"), select(WHOLE, "accuracy")),
        ]
        for part in PARTS
    ]
    write_table(RESULTS / "parts.md", ["without", *COLUMNS, "accuracy minus the whole"], table)


if __name__ == "__main__":
    main()
