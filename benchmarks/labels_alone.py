"""The opponent of `train --data`: how long does it train, and when is it the one to use?

    python benchmarks/labels_alone.py --seeds 3     # about 15 minutes of one core a seed

`train --data` also learns from the labels alone, for half as many steps, with a learning rate that
comes down to 0 and averaged weights. Here that is tried for half and twice as long, and against a
training that stops by itself: at a constant rate, until the loss on a fifth of the labels, which it
does not learn from, has not come down for eight epochs; then the weights of the best epoch are
used, or all labels are trained for as many epochs.

And where test images measure both, a third of the labels chooses: it is hidden from two trainings
of a third of the length. Here validation images tell which model was the better one.

10 labels a class, gray images of 28 or 32 pixels, strong views, 3,000 steps with unlabeled images;
error on validation images from the training part, test parts are never read. It can be stopped at
any time and continues when called again. Writes `results/labels-alone/`.
"""

import argparse
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import nll_loss

from choose_method import STEPS, choose_for
from dualstudent import PreparedData, Recipe, Trainer
from dualstudent.optimization.schedules import ConstantSchedule
from dualstudent.training.crossvalidation import (
    LABELS_ALONE,
    compare_by_folds,
    hide_labels,
    plan_folds,
    shorten,
)
from dualstudent.training.gain import compute_gain
from dualstudent.worth import make_opponent
from tables import run_trials, spread, spread_of_differences, write_table

RESULTS = Path(__file__).parents[1] / "results" / "labels-alone"
TRIED = ("mnist-5k", "SVHN", "CIFAR-10", "clothing, even")
AS_IT_IS = "half as long as with unlabeled images: as it is"
LENGTHS = {AS_IT_IS: 1.0, "a quarter": 0.5, "as long": 2.0}
LONGEST = 2.0  # of what stops by itself
STOPS, AGAIN = "stops by itself, 8 labels a class", "as long as that, all 10"
WITH = "with unlabeled images"
PATIENCE = 8  # epochs


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    seeds = range(parser.parse_args().seeds)
    torch.set_num_threads(1)
    trials = [{"task": task, "seed": seed} for seed in seeds for task in TRIED]
    rows = run_trials(RESULTS / "trials.csv", trials, try_all)
    names = (*LENGTHS, STOPS, AGAIN, "epochs", WITH)
    table = [[name, *(describe(rows, task, name) for task in TRIED)] for name in names]
    write_table(RESULTS / "table.md", ["validation error in %", *TRIED], table)


def describe(rows: list[dict[str, Any]], task: str, name: str) -> str:
    """Mean and deviation over the seeds, and of the differences to how it is."""
    own, other = (
        [float(row[key]) for row in rows if row["task"] == task] for key in (name, AS_IT_IS)
    )
    if name == "epochs":
        return spread(own)
    return f"{spread(own)} ({spread_of_differences(own, other)})"


def try_all(task: str, seed: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for variant, length in LENGTHS.items():
        recipe, data = choose_for(task, {}, seed, length * STEPS)
        found[variant] = measure(learn(Trainer(oppose(recipe, data), data)), data)
    recipe, data = choose_for(task, {}, seed, LONGEST * STEPS)
    constant = ConstantSchedule(epochs=recipe.epochs, warmup_epochs=1.0, warmup_from=0.0)
    steady = oppose(recipe, data).model_copy(update={"schedule": constant})
    stopped, best = learn_until_it_stops(steady, data, choose_hidden(data))
    found[STOPS] = measure(stopped, data)
    as_long = constant.model_copy(update={"epochs": best})
    trainer = learn(Trainer(steady.model_copy(update={"schedule": as_long}), data))
    found |= {AGAIN: measure(trainer, data), "epochs": best}
    recipe, data = choose_for(task, {}, seed)
    found[WITH] = measure(learn(Trainer(recipe, data)), data)
    return found | choose_by_labels(recipe, data)


def oppose(recipe: Recipe, data: PreparedData) -> Recipe:
    opponent = make_opponent(recipe, data)
    assert opponent is not None
    return opponent


def choose_by_labels(recipe: Recipe, data: PreparedData) -> dict[str, Any]:
    """Errors of both on the labels that are hidden, and what they choose."""
    plan = plan_folds(recipe, data)
    short = shorten(recipe, plan)
    recipes = {"ours": short, LABELS_ALONE: oppose(short, data)}
    found = compare_by_folds(data, recipes, plan)
    assert found is not None
    gain = compute_gain("cross-validation", found.errors["ours"], found.errors[LABELS_ALONE])
    return {
        "hidden labels, with": round(gain.error, 1),
        "hidden labels, alone": round(gain.labels_only_error, 1),
        "chosen": LABELS_ALONE if gain.labels_only_used else WITH,
    }


def choose_hidden(data: PreparedData) -> Tensor:
    """Two labels of each class."""
    labels = data.labels[data.labeled]
    return torch.cat([data.labeled[labels == label][:2] for label in range(len(data.classes))])


def learn(trainer: Trainer, on_epoch: Callable[[int], bool] = lambda epoch: False) -> Trainer:
    """Train to the end, or until ``on_epoch`` says that it is enough."""
    while not trainer.done:
        record = trainer.advance()
        if record is not None and on_epoch(record["epoch"]):
            break
    return trainer


def learn_until_it_stops(recipe: Recipe, data: PreparedData, hidden: Tensor) -> tuple[Trainer, int]:
    """Train without the hidden labels; return the weights of the best epoch, and its number."""
    trainer = Trainer(recipe, hide_labels(data, hidden))
    best = (float("inf"), 0, trainer.method.state_dict())

    def has_stopped(epoch: int) -> bool:
        nonlocal best
        loss = float(
            nll_loss(predict(trainer, data, hidden, test=False).log(), data.labels[hidden])
        )
        if loss < best[0]:
            best = loss, epoch, copy.deepcopy(trainer.method.state_dict())
        return epoch >= best[1] + PATIENCE

    learn(trainer, has_stopped)
    trainer.method.load_state_dict(best[2])
    return trainer, best[1]


def measure(trainer: Trainer, data: PreparedData) -> float:
    """The error on the validation images in percent."""
    everything = torch.arange(len(data.test_labels))
    answers = predict(trainer, data, everything, test=True).argmax(dim=1)
    return round(100 * float((answers != data.test_labels).double().mean()), 2)


def predict(trainer: Trainer, data: PreparedData, asked: Tensor, test: bool) -> Tensor:
    """(n, C) probabilities by the averaged weights."""
    (network,) = trainer.method.evaluated.values()
    network.eval()
    samples = data.test if test else data.train
    with torch.inference_mode():
        parts = [network(samples.make_views(part, [None])[0]) for part in torch.split(asked, 500)]
    network.train()
    return torch.cat([part.class_logits for part in parts]).float().softmax(dim=1)


if __name__ == "__main__":
    main()
