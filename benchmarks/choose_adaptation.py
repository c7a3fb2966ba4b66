"""Which settings adapt best from USPS to MNIST? Chosen without any label of MNIST.

    python benchmarks/choose_adaptation.py      # 1 to 4 minutes of one core a trial

First the two students learn USPS, with narrow or wide views; then they adapt from the same start,
on every second training image of MNIST. The labels of MNIST are deleted before anything is trained.
What can still be measured, on every sixth training image of MNIST:

- confident: the share of them for which both students are stable (Eq. 3),
- agree: the share for which the students predict the same class,
- rarest: the share of the class that is predicted least often; classes that are lost show here.

It can be stopped at any time and continues when called again. Writes `results/adaptation/`.
"""

import dataclasses
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from dualstudent import Predictions, PreparedData, Recipe, Trainer, load_recipe, predict, prepare
from tables import run_trials, write_table

RESULTS = Path(__file__).parents[1] / "results" / "adaptation"
ADAPTED, MEASURED = 2, 6  # every such target image
COLUMNS = ("confident", "agree", "rarest", "seconds")

Changes = tuple[str, ...]
NARROW = "transforms.weak.affine=[12, 0.15, 0.15, 0.07]"
WIDE = "transforms.weak.affine=[15, 0.3, 0.2, 0.1]"
WIDER = "transforms.weak.affine=[20, 0.35, 0.3, 0.1]"
FIRST = ("batch.size=256", "batch.labeled=64", "optimizer.learning_rate=0.05", "ema.decay=0.995")
LARGE = ("batch.size=224", "batch.labeled=32", "optimizer.learning_rate=0.05", "ema.decay=0.995")
HALF = ("batch.size=112", "batch.labeled=16", "optimizer.learning_rate=0.03", "ema.decay=0.995")
KL = ("method.distance=kl", "method.consistency_weight=0.1", "method.stabilization_weight=1")
SMALL = ("batch.size=112", "batch.labeled=16", "optimizer.learning_rate=0.03")
START = (WIDE, *FIRST)
ONE, TWO = ((WIDE, f"transforms.weak.randaugment={count}") for count in (1, 2))


class Trial(NamedTuple):
    """Changes of the recipe for the source, and for the target, unless it is of the source only."""

    source: Changes
    target: Changes | None = None
    source_epochs: int = 1


TRIALS = {
    "source: narrow views": Trial((NARROW, *FIRST)),
    "source: wide views": Trial(START),
    "target: wide views": Trial(START, (WIDE, *LARGE)),
    "target: wide views, KL": Trial(START, (WIDE, *LARGE, *KL)),
    "target: narrow views": Trial(START, (NARROW, *LARGE)),
    "target: wide views, half the batch": Trial(START, (WIDE, *HALF)),
    "source: wider views, cutout": Trial((WIDER, "transforms.weak.cutout=0.3", *SMALL)),
    "source: wide views, RandAugment": Trial((*ONE, *SMALL)),
    "source: RandAugment, 64 labels a step": Trial(ONE),
    "source: the same, 3 epochs": Trial(ONE, source_epochs=3),
    "source: two operations, 3 epochs": Trial(TWO, source_epochs=3),
    "target: from there, narrow views": Trial(ONE, (), 3),
    "target: from there, stronger stabilization": Trial(
        ONE, ("method.stabilization_weight=30",), 3
    ),
    "target: from there, RandAugment": Trial(ONE, ("transforms.weak.randaugment=1",), 3),
}


def main() -> None:
    torch.set_num_threads(1)
    rows = run_trials(RESULTS / "trials.csv", [{"trial": name} for name in TRIALS], measure)
    cells = [[row["trial"], *(row[column] for column in COLUMNS)] for row in rows]
    write_table(RESULTS / "trials.md", ["trial", *COLUMNS], cells)


def measure(trial: str) -> dict[str, str]:
    source, target, epochs = TRIALS[trial]
    trainer, seconds = learn_source(source, epochs)
    if target is not None:
        recipe = describe(target).model_copy(update={"stages": ()})
        trainer, seconds = run(recipe, list(trainer.method.averages.values()))
    data = prepare_unlabeled(trainer.recipe)
    chosen = data.unlabeled[::MEASURED]
    found = Predictions.join(predict(trainer.method, data.train, chosen, 0, "cpu"))
    classes = found.labels[:, 0].bincount(minlength=len(data.classes))
    return {
        "confident": f"{found.stable_for_all.float().mean():.4f}",
        "agree": f"{found.agree.float().mean():.4f}",
        "rarest": f"{classes.min() / len(chosen):.3f}",
        "seconds": f"{seconds:.0f}",
    }


@cache
def learn_source(changes: Changes, epochs: int) -> tuple[Trainer, float]:
    first = describe(changes).split_stages()[0]
    seen: Any = first.method.model_copy(update={"view": "weak"})
    length = first.schedule.model_copy(update={"epochs": epochs})
    return run(first.model_copy(update={"method": seen, "schedule": length}))


def describe(changes: Changes) -> Recipe:
    shared = ("schedule.epochs=1", "evaluation.every=1000", "device.accelerator=cpu")
    return load_recipe("usps-mnist-best", [*shared, *changes])


def run(recipe: Recipe, start: Sequence[nn.Module] = ()) -> tuple[Trainer, float]:
    """Train to the end, from the weights of other networks if there are any; and CPU seconds."""
    data = prepare_unlabeled(recipe)
    if start:
        data = dataclasses.replace(data, unlabeled=data.unlabeled[::ADAPTED])
    trainer = Trainer(recipe, data)
    for networks in (trainer.method.students, trainer.method.averages.values()) if start else ():
        for network, known in zip(networks, start, strict=True):
            network.load_state_dict(known.state_dict())
    started = time.process_time()
    while not trainer.done:
        trainer.advance()
    return trainer, time.process_time() - started


def prepare_unlabeled(recipe: Recipe) -> PreparedData:
    """The data of a recipe, without labels of the target and of its test part."""
    data = prepare(recipe.data, recipe.seed, recipe.transforms, recipe.normalization)
    assert data.is_target is not None
    assert bool((data.labels[data.is_target] == -1).all())
    return dataclasses.replace(data, test_labels=torch.zeros_like(data.test_labels))


if __name__ == "__main__":
    main()
