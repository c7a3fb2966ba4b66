"""Which settings adapt best from USPS to MNIST? Chosen without any label of MNIST.

    python benchmarks/choose_adaptation.py      # about 5 minutes a candidate on one core

Each candidate is the recipe `usps-mnist-best` with some changes, on every sixth training image of
MNIST, for a fifth of its steps. The labels of MNIST are deleted before anything is trained, and its
test images are never read. What can still be measured on the target images:

- confident: the share of them for which every student is stable (Eq. 3),
- agree: the share for which the students predict the same class,
- reverse: a linear classifier learns the predicted classes of the target images from their pixels,
  and is tested on the labels of the source.

The candidate with the largest product of the three is chosen. It can be stopped at any time and
continues when called again. Writes `results/adaptation/`.
"""

import dataclasses
import time
from pathlib import Path
from typing import Any

import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from dualstudent import Predictions, PreparedData, Trainer, load_recipe, predict, prepare
from tables import run_trials, write_table

RESULTS = Path(__file__).parents[1] / "results" / "adaptation"
SHORT = ("schedule.epochs=8", "evaluation.every=1000", "device.accelerator=cpu")
EVERY = 6  # of the target images
TESTED = 3000  # images of each domain, for the reverse check

# name → changes of the recipe; one part at a time, so that the table is an ablation as well
CANDIDATES = {
    "the recipe": [],
    "batch norm together": ["network.batch_norm=together"],
    "no entropy terms": ["method.entropy_weight=0", "method.balance_weight=0"],
    "no class balance": ["method.balance_weight=0"],
    "no centroids": ["method.pseudo_label_weight=0"],
    "centroids 1": ["method.pseudo_label_weight=1"],
    "no stabilization": ["method.stabilization_weight=0"],
    "stabilization 30": ["method.stabilization_weight=30"],
    "no affine views": ["transforms.weak.affine=[0, 0, 0, 0]", "transforms.weak.translate=2"],
    "stronger views": ["transforms.weak.affine=[15, 0.2, 0.2, 0.1]", "transforms.weak.cutout=0.3"],
}


def main() -> None:
    torch.set_num_threads(1)
    trials = [{"candidate": name} for name in CANDIDATES]
    rows = run_trials(RESULTS / "trials.csv", trials, measure)
    columns = ["candidate", "confident", "agree", "reverse", "seconds"]
    ordered = sorted(rows, key=_product, reverse=True)
    write_table(RESULTS / "trials.md", columns, [[row[key] for key in columns] for row in ordered])
    print(f"chosen: {ordered[0]['candidate']}")


def _product(row: dict[str, Any]) -> float:
    return float(row["confident"]) * float(row["agree"]) * float(row["reverse"])


def measure(candidate: str) -> dict[str, Any]:
    recipe = load_recipe("usps-mnist-best", [*SHORT, *CANDIDATES[candidate]])
    source = recipe.stages[0].model_copy(
        update={"schedule": recipe.schedule.model_copy(update={"epochs": 6})}
    )
    recipe = recipe.model_copy(update={"stages": (source, *recipe.stages[1:])})
    started = time.monotonic()
    data = delete_labels(prepare(recipe.data, recipe.seed, recipe.transforms, recipe.normalization))
    trainer = Trainer(recipe, data)
    while not trainer.done:
        trainer.advance()
    seconds = time.monotonic() - started
    found = Predictions.join(
        predict(trainer.method, data.train, data.unlabeled[:TESTED], recipe.seed, "cpu")
    )
    return {
        "confident": f"{found.stable_for_all.float().mean():.4f}",
        "agree": f"{found.agree.float().mean():.4f}",
        "reverse": f"{check_on_source(data, found):.4f}",
        "seconds": f"{seconds:.0f}",
    }


def delete_labels(data: PreparedData) -> PreparedData:
    """The same without labels of the target, without its test part, and with fewer images."""
    assert data.is_target is not None
    assert bool((data.labels[data.is_target] == -1).all())
    nothing = data.test_labels[:0]
    return dataclasses.replace(
        data, unlabeled=data.unlabeled[::EVERY], test_labels=nothing, origin=data.origin
    )


def check_on_source(data: PreparedData, found: Predictions) -> float:
    """Accuracy on the source of a classifier that knows predictions for the target only."""
    classes = found.probabilities.argmax(dim=1)
    reverse = LogisticRegression(max_iter=200).fit(pixels(data, found.indices), classes)
    asked = data.labeled[:TESTED]
    return float(reverse.score(pixels(data, asked), data.labels[asked]))


def pixels(data: PreparedData, indices: Tensor) -> Any:
    """Images as vectors of mean 0 and deviation 1, as the network sees them."""
    rows = data.train.make_views(indices, [None])[0].flatten(1)
    return ((rows - rows.mean(dim=1, keepdim=True)) / rows.std(dim=1, keepdim=True)).numpy()


if __name__ == "__main__":
    main()
