"""Which settings adapt best from USPS to MNIST? Chosen without any label of MNIST.

    python benchmarks/choose_adaptation.py      # 1 to 2 minutes of one core a trial

First the two students learn USPS, with narrow or wide views; then they adapt from the same start,
on every second training image of MNIST, with one setting changed at a time. The labels of MNIST are
deleted before anything is trained. What can still be measured, on every sixth of these images:

- confident: the share of them for which both students are stable (Eq. 3),
- agree: the share for which the students predict the same class,
- rarest: the share of the class that is predicted least often; classes that are lost show here,
- reverse: a linear classifier learns the predicted classes from pixels, and is tested on the labels
  of the source.

It can be stopped at any time and continues when called again. Writes `results/adaptation/`.
"""

import dataclasses
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from dualstudent import Predictions, PreparedData, Recipe, Trainer, load_recipe, predict, prepare
from tables import run_trials, write_table

RESULTS = Path(__file__).parents[1] / "results" / "adaptation"
ADAPTED, MEASURED = 2, 6  # every such target image
REVERSE = 3000  # images of each domain for the reverse check
NARROW, WIDE = (12, 0.15, 0.15, 0.07), (15, 0.3, 0.2, 0.1)  # affine views
SHARED = ("ema.decay=0.995", "evaluation.every=1000", "device.accelerator=cpu")
KL = ("method.distance=kl", "method.consistency_weight=0.1", "method.stabilization_weight=1")

# name → views of the source, views of the target (None: the source only), batch, other changes
TRIALS: dict[str, tuple[Any, Any, tuple[int, int, float], Sequence[str]]] = {
    "source, narrow views": (NARROW, None, (256, 64, 0.05), ()),
    "source, wide views": (WIDE, None, (256, 64, 0.05), ()),
    "wide, target wide": (WIDE, WIDE, (224, 32, 0.05), ()),
    "wide, target wide, KL": (WIDE, WIDE, (224, 32, 0.05), KL),
    "wide, target narrow": (WIDE, NARROW, (224, 32, 0.05), ()),
    "wide, target wide, half the batch": (WIDE, WIDE, (112, 16, 0.03), ()),
}
COLUMNS = ("confident", "agree", "rarest", "reverse", "seconds")


def main() -> None:
    torch.set_num_threads(1)
    rows = run_trials(RESULTS / "trials.csv", [{"trial": name} for name in TRIALS], measure)
    cells = [[row["trial"], *(row[column] for column in COLUMNS)] for row in rows]
    write_table(RESULTS / "trials.md", ["trial", *COLUMNS], cells)


def measure(trial: str) -> dict[str, Any]:
    of_source, of_target, batch, changes = TRIALS[trial]
    if of_target is None:
        trainer, seconds = learn_source(of_source)
    else:
        before, _ = learn_source(of_source)
        recipe = describe(of_target, batch, changes).model_copy(update={"stages": ()})
        trainer, seconds = run(recipe, list(before.method.averages.values()))
    data = prepare_unlabeled(trainer.recipe)
    chosen = data.unlabeled[::MEASURED]
    found = Predictions.join(predict(trainer.method, data.train, chosen, 0, "cpu"))
    classes = found.labels[:, 0].bincount(minlength=len(data.classes))
    measured = {
        "confident": found.stable_for_all.float().mean().item(),
        "agree": found.agree.float().mean().item(),
        "rarest": classes.min().item() / len(chosen),
        "reverse": check_on_source(data, found),
    }
    return {key: f"{value:.4f}" for key, value in measured.items()} | {"seconds": f"{seconds:.0f}"}


@cache
def learn_source(affine: tuple[float, ...]) -> tuple[Trainer, float]:
    first = describe(affine, (256, 64, 0.05), ()).split_stages()[0]
    short = first.schedule.model_copy(update={"epochs": 1})
    seen = first.method.model_copy(update={"view": "weak"})
    return run(first.model_copy(update={"schedule": short, "method": seen}))


def describe(
    affine: Sequence[float], batch: tuple[int, int, float], changes: Sequence[str]
) -> Recipe:
    size, labeled, rate = batch
    sizes = (f"batch.size={size}", f"batch.labeled={labeled}", f"optimizer.learning_rate={rate}")
    views = f"transforms.weak.affine={list(affine)}"
    return load_recipe("usps-mnist-best", [views, "schedule.epochs=1", *sizes, *SHARED, *changes])


def run(recipe: Recipe, start: Sequence[nn.Module] = ()) -> tuple[Trainer, float]:
    """Train to the end, from the weights of other networks if there are any; and CPU seconds."""
    data = prepare_unlabeled(recipe)
    if start:
        data = dataclasses.replace(data, unlabeled=data.unlabeled[::ADAPTED])
    trainer = Trainer(recipe, data)
    students = (trainer.method.students, trainer.method.averages.values())
    for networks in students if start else ():
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


def check_on_source(data: PreparedData, found: Predictions) -> float:
    """Accuracy on the source of a classifier that knows predictions for the target only."""
    seen, classes = found.indices[:REVERSE], found.labels[:REVERSE, 0]
    reverse = LogisticRegression(max_iter=200).fit(pixels(data, seen), classes)
    asked = data.labeled[:REVERSE]
    return float(reverse.score(pixels(data, asked), data.labels[asked]))


def pixels(data: PreparedData, indices: Tensor) -> Any:
    """Images as vectors of mean 0 and deviation 1, as the network sees them."""
    rows = data.train.make_views(indices, [None])[0].flatten(1)
    return ((rows - rows.mean(dim=1, keepdim=True)) / rows.std(dim=1, keepdim=True)).numpy()


if __name__ == "__main__":
    main()
