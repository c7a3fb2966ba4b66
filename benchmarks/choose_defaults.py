"""Which settings should be chosen for images that nobody has seen? The table of trials.

    python benchmarks/choose_defaults.py      # about 40 minutes on one core

Every candidate on every task: 10 labels a class, up to 6,000 unlabeled images, error on validation
images from the training part; test parts are never read. All candidates get about the same time:
two students take half of the steps. Leave one out: the candidate that is best on the other tasks
(lowest mean excess over the best of each task), and how it does on the one left out. It can be
stopped at any time and continues when called again. Writes `results/defaults/`.
"""

import argparse
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from dualstudent import PreparedData, Recipe, Trainer, Transforms
from tables import run_trials, write_table
from validation_tasks import GRAY, MAY_BE_MIRRORED, TASKS, prepare_task

RESULTS = Path(__file__).parents[1] / "results" / "defaults"
STEPS = 500  # of methods with one student
LABELED, UNLABELED = 32, 96
AFFINE = (10.0, 0.1, 0.1, 0.05)
RANDAUGMENT = {"randaugment": 2, "affine": AFFINE, "cutout": 0.5}
DUAL_STUDENT = {
    "name": "dual-student",
    "consistency_weight": 10,
    "stabilization_weight": 100,
    "confidence_threshold": 0.6,
    "classification_average": "labeled",
}
# name → weak and strong views, method, learning rate, steps, where they differ from FixMatch's
CANDIDATES: dict[str, dict[str, Any]] = {
    "labels alone, strong views": {"method": {"name": "supervised", "view": "strong"}},
    "Dual Student, affine views": {
        "weak": {"affine": (15.0, 0.1, 0.15, 0.05)},
        "method": DUAL_STUDENT,
        "rate": 0.1,
        "steps": STEPS // 2,
    },
    "FixMatch, RandAugment, affine, cutout": {},
    "the same, learning rate 0.1": {"rate": 0.1},
    "the same, threshold 0.8": {"method": {"name": "fixmatch", "pseudo_label_threshold": 0.8}},
    "the same, weak views keep their colors": {"jitter": (0.0, 0.0, 0.0, 0.0)},
    "FixMatch, affine, jitter, cutout": {
        "strong": {"affine": (20.0, 0.15, 0.2, 0.1), "jitter": (0.5, 0.5, 0.5, 0), "cutout": 0.5}
    },
    "FixMatch, RandAugment, cutout": {"strong": {"randaugment": 2, "cutout": 0.5}},
    "FreeMatch": {"method": {"name": "freematch"}},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--tasks", default=";".join(TASKS), help="by their names, with ';'")
    asked = parser.parse_args()
    tasks = asked.tasks.split(";")
    torch.set_num_threads(1)
    trials = [
        {"task": task, "candidate": candidate, "seed": seed}
        for seed in range(asked.seeds)
        for task in tasks
        for candidate in CANDIDATES
    ]
    write_tables(run_trials(RESULTS / "trials.csv", trials, try_candidate), tasks)


def try_candidate(task: str, candidate: str, seed: int) -> dict[str, float]:
    views, recipe = describe(task, CANDIDATES[candidate])
    data = prepare_task(task, 10, seed, Transforms.model_validate(views))
    per_epoch = max(1, len(data.unlabeled) // UNLABELED)
    epochs = max(2, round(CANDIDATES[candidate].get("steps", STEPS) / per_epoch))
    ramp, warmup = epochs / 4, min(1.0, epochs / 4)
    schedule = {"name": "cosine", "epochs": epochs, "rampup_epochs": ramp}
    schedule |= {"warmup_epochs": warmup, "warmup_from": 0.0}
    return train_once(Recipe.model_validate(recipe | {"seed": seed, "schedule": schedule}), data)


def train_once(recipe: Recipe, data: PreparedData) -> dict[str, float]:
    """The validation error in percent after the last epoch, and seconds of the CPU."""
    trainer = Trainer(recipe, data)
    start = time.process_time()
    while not trainer.done:
        trainer.advance()
    seconds = time.process_time() - start
    error = fmean(each["error"] for each in trainer.evaluate()["test"].values())
    return {"error": round(error, 2), "seconds": round(seconds, 1)}


def describe(task: str, candidate: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The views, and the recipe without its length."""
    shared = {"flip": task in MAY_BE_MIRRORED}
    colors = (0.0, 0.0, 0.0 if task in GRAY else 1.0, 0.0 if task in GRAY else 0.5)
    colors = candidate.get("jitter", colors)
    views = {
        "weak": shared | {"translate": 2, "jitter": colors} | candidate.get("weak", {}),
        "strong": shared | candidate.get("strong", RANDAUGMENT),
    }
    return views, {
        "data": {},
        "network": {
            "name": "whitened-cnn",
            "widths": [16, 32] if task == "digits-8x8" else [16, 32, 64],
            "mirror_at_test": task in MAY_BE_MIRRORED,
        },
        "method": candidate.get("method", {"name": "fixmatch"}),
        "batch": {"size": LABELED + UNLABELED, "labeled": LABELED},
        "optimizer": {
            "name": "sgd",
            "learning_rate": candidate.get("rate", 0.2),
            "weight_decay": 5e-4,
            "decay_norms_and_biases": False,
        },
    }


def write_tables(rows: list[dict[str, Any]], tasks: list[str]) -> None:
    errors = {
        name: [
            fmean(float(r["error"]) for r in rows if (r["task"], r["candidate"]) == (task, name))
            for task in tasks
        ]
        for name in CANDIDATES
    }
    best = [min(column) for column in zip(*errors.values(), strict=True)]
    excess = {
        name: [error - least for error, least in zip(row, best, strict=True)]
        for name, row in errors.items()
    }
    write_table(
        RESULTS / "trials.md",
        ["validation error in %", *tasks, "mean excess over the best"],
        [
            [name, *(f"{error:.1f}" for error in row), f"{fmean(excess[name]):.1f}"]
            for name, row in errors.items()
        ],
    )
    left_out = []
    for number, task in enumerate(tasks):
        others = {name: fmean(e[:number] + e[number + 1 :]) for name, e in excess.items()}
        chosen = min(others, key=others.__getitem__)
        left_out.append([task, chosen, f"{errors[chosen][number]:.1f}", f"{best[number]:.1f}"])
    write_table(
        RESULTS / "leave-one-out.md",
        ["left out", "chosen on the others", "its error in %", "best error of all candidates"],
        left_out,
    )


if __name__ == "__main__":
    main()
