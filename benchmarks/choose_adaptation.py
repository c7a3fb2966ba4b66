"""Which settings adapt best from USPS to MNIST? Chosen without any label of MNIST.

    python benchmarks/choose_adaptation.py      # 1 to 4 minutes of one core a trial

First the two students learn USPS, with narrow or wide views; then they adapt from the same start,
on every second training image of MNIST. The labels of MNIST are deleted before anything is trained.
What can still be measured, on every sixth training image of MNIST:

- confident: the share of them for which both students are stable (Eq. 3),
- agree: the share for which the students predict the same class,
- rarest: the share of the class that is predicted least often; classes that are lost show here,
- reverse: a new network learns MNIST from the labels that the first student gives; how many of the
  USPS training images, whose labels are known, it gets right.

It can be stopped at any time and continues when called again. Writes `results/adaptation/`.
"""

import dataclasses
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dualstudent import (
    Predictions,
    PreparedData,
    Recipe,
    SupervisedSettings,
    Trainer,
    load_recipe,
    predict,
    prepare,
    prepare_arrays,
)
from tables import run_trials, write_table

RESULTS = Path(__file__).parents[1] / "results" / "adaptation"
ADAPTED, MEASURED = 2, 6  # every such target image
REVERSE_EPOCHS = 4  # over what was measured
COLUMNS = ("confident", "agree", "rarest", "reverse", "seconds")

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
    return measure_without_labels(trainer) | {"seconds": f"{seconds:.0f}"}


def measure_without_labels(trainer: Trainer) -> dict[str, str]:
    data = prepare_unlabeled(trainer.recipe)
    chosen = data.unlabeled[::MEASURED]
    found = Predictions.join(predict(trainer.method, data.train, chosen, 0, "cpu"))
    labels = found.labels[:, 0]
    return {
        "confident": f"{found.stable_for_all.float().mean():.4f}",
        "agree": f"{found.agree.float().mean():.4f}",
        "rarest": f"{labels.bincount(minlength=len(data.classes)).min() / len(chosen):.3f}",
        "reverse": f"{check_in_reverse(data, chosen, labels):.4f}",
    }


def check_in_reverse(data: PreparedData, chosen: Tensor, labels: Tensor) -> float:
    """Share of the source that a network gets right which learned these labels of the target."""
    changes = (WIDE, "batch.size=128", "batch.labeled=128", "network.batch_norm=together")
    recipe = describe((*changes, f"schedule.epochs={REVERSE_EPOCHS}")).split_stages()[0]
    network = SupervisedSettings(view="strong", label_smoothing=0.1)
    recipe = recipe.model_copy(update={"method": network})
    pixels, known = (
        data.train.read_pixels(each).permute(0, 2, 3, 1).numpy()  # type: ignore[union-attr]
        for each in (chosen, data.labeled)
    )
    test = (known, data.labels[data.labeled].numpy())
    turned = prepare_arrays(pixels, labels.numpy(), test, recipe.transforms, recipe.normalization)
    trainer = Trainer(recipe, turned)
    while not trainer.done:
        trainer.advance()
    (found,) = trainer.evaluate()["test"].values()
    return 1 - float(found["error"]) / 100


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
