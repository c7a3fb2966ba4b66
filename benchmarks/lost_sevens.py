"""What keeps FixMatch from losing the sevens with a bar? The table of trials.

    python benchmarks/lost_sevens.py --seeds 12,16    # they lose them; a minute of a core a trial
    python benchmarks/lost_sevens.py --seeds 11,13,14,15 --variants 'few-labels;SoftMatch;FreeMatch'

The recipe `few-labels` (100 labels of MNIST) at half of its length, with one change each, on draws
of the labels that lose a tenth of the sevens and on draws that do not. Error, and the share of the
sevens that are lost, on 10,000 images held out of the training part; the test part is never read.
It can be stopped at any time and continues when called again. Writes `results/lost-sevens/`.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dualstudent import DataSettings, Trainer, load_recipe, prepare, prepare_arrays
from tables import run_trials, spread, spread_of_differences, write_table

RESULTS = Path(__file__).parents[1] / "results" / "lost-sevens"
HELD_OUT, PER_CLASS, LENGTH = 10_000, 10, 0.5
PLAIN = "few-labels"
VARIANTS: dict[str, list[str]] = {
    PLAIN: [],
    "affine weak views": ["transforms.weak.affine=[10, 0.1, 0.1, 0.05]"],
    "threshold 0.99": ["method.pseudo_label_threshold=0.99"],
    "smoothed labels, threshold 0.8": [
        "method.label_smoothing=0.1",
        "method.pseudo_label_threshold=0.8",
    ],
    "FreeMatch": ["method.name=freematch"],
    "SoftMatch": ["method.name=softmatch"],
    "FlexMatch": ["method.name=flexmatch"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", required=True, help="draws of the labels, with ','")
    parser.add_argument("--variants", default=";".join(VARIANTS), help="by their names, with ';'")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    trials = [
        {"variant": variant, "seed": seed}
        for seed in map(int, asked.seeds.split(","))
        for variant in asked.variants.split(";")
    ]
    write_results(run_trials(RESULTS / "trials.csv", trials, measure))


def measure(variant: str, seed: int) -> dict[str, float]:
    changes = ["device.precision=bf16-mixed", *VARIANTS[variant], f"seed={seed}"]
    recipe = load_recipe("few-labels", changes)
    schedule = recipe.schedule.model_copy(update={"epochs": round(LENGTH * recipe.schedule.epochs)})
    recipe = recipe.model_copy(update={"schedule": schedule})
    everything = prepare(DataSettings(source="mnist", labels="all"), seed=0)
    pixels = everything.train.read_pixels(torch.arange(len(everything.labels)))
    assert pixels is not None
    images, labels = pixels.permute(0, 2, 3, 1).numpy(), everything.labels.numpy()
    held, rest = np.split(np.random.default_rng(seed).permutation(len(labels)), [HELD_OUT])
    known = np.full(len(rest), -1)
    for label in range(10):
        known[np.flatnonzero(labels[rest] == label)[:PER_CLASS]] = label
    data = prepare_arrays(images[rest], known, (images[held], labels[held]), recipe.transforms)
    trainer = Trainer(recipe, data)
    while not trainer.done:
        trainer.advance()
    found = trainer.predict_test()
    truth, answers = data.test_labels[found.indices], found.probabilities.argmax(dim=1)
    sevens = truth == 7
    return {
        "error": round(100 * float((answers != truth).double().mean()), 2),
        "lost_sevens": round(100 * float((answers[sevens] != 7).double().mean()), 1),
    }


def write_results(rows: list[dict[str, Any]]) -> None:
    def select(variant: str, column: str) -> dict[str, float]:
        found = (row for row in rows if row["variant"] == variant)
        return {row["seed"]: float(row[column]) for row in found}

    table = []
    for variant in dict.fromkeys(row["variant"] for row in rows):
        error, lost = select(variant, "error"), select(variant, "lost_sevens")
        plain = select(PLAIN, "error")
        both = sorted(error.keys() & plain.keys())
        pairs = [[each[seed] for seed in both] for each in (error, plain)]
        change = spread_of_differences(*pairs) if both else ""
        by_draw = [f"{seed}: {error[seed]:.2f} ({lost[seed]:.1f})" for seed in sorted(error)]
        table.append([variant, spread(list(error.values())), change, ", ".join(by_draw)])
    heads = ["error", f"minus {PLAIN}", "by draw (sevens that are lost)"]
    write_table(RESULTS / "table.md", ["held-out images, in %", *heads], table)


if __name__ == "__main__":
    main()
