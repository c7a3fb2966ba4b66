"""When does a pretrained trunk help? By logistic regression beforehand, and by FixMatch afterwards.

    python benchmarks/trunk_or_scratch.py      # about 100 minutes on one core

`dualstudent train --data` uses a trunk if logistic regression on its features is wrong less than
0.75 times (0.65 on small gray images) as often as on the patches that the images have, on labels
that were hidden once each. Is that a good rule? This measures the ratio, and the error of FixMatch
on features and from scratch, with what is chosen for own images. 10 labels a class, 1,500 images,
validation images from the training part. It can be stopped at any time and continues when called
again. Writes `results/trunk-or-scratch/`.
"""

from pathlib import Path
from typing import Any

import torch

from choose_defaults import describe, train_once
from dualstudent import PreparedData, Recipe, Transforms, TrunkSettings, try_trunk
from tables import run_trials, write_table
from validation_tasks import TASKS, prepare_task

RESULTS = Path(__file__).parents[1] / "results" / "trunk-or-scratch"
IMAGES, HEAD_STEPS, STEPS = 1_500, 800, 3_000
TRUNK = {"name": "efficientnet-lite0", "weak_views": 2, "strong_views": 2}
HEADS = {  # what `train --data` chooses on features
    "data": {},
    "trunk": TRUNK,
    "network": {"name": "mlp", "hidden": [], "head_scale": 0.01},
    "method": {"name": "fixmatch", "pseudo_label_threshold": 0.5},
    "batch": {"size": 128, "labeled": 32},
    "optimizer": {"name": "sgd", "learning_rate": 0.003, "weight_decay": 5e-4},
}
NO_JITTER = (0.0, 0.0, 0.0, 0.0)
MADE_GRAY = {f"{task}, gray": task for task in ("SVHN", "CIFAR-10", "clothing, 32 px")}
COLUMNS = ("trunk, line", "patches, line", "ratio", "trunk, FixMatch", "scratch, FixMatch")


def main() -> None:
    torch.set_num_threads(1)
    trials = [{"task": task, "seed": seed} for seed in range(3) for task in MADE_GRAY]
    trials += [{"task": task, "seed": 0} for task in TASKS]
    rows = run_trials(RESULTS / "trials.csv", trials, try_task)
    write_table(
        RESULTS / "table.md",
        ["validation error in %", "seed", *COLUMNS],
        [[row["task"], row["seed"], *(row[column] for column in COLUMNS)] for row in rows],
    )


def try_task(task: str, seed: int) -> dict[str, float]:
    source = MADE_GRAY.get(task, task)
    views, scratch = describe(source, {"jitter": NO_JITTER} if task in MADE_GRAY else {})
    data = prepare(task, seed, Transforms.model_validate(views))
    pixels = data.train.read_pixels(data.labeled)
    assert pixels is not None
    lines = try_trunk(pixels, data.labels[data.labeled], TrunkSettings.model_validate(TRUNK), seed)
    assert lines is not None
    views["weak"]["jitter"] = NO_JITTER  # the trunk knows what colors mean
    errors = (
        train_once(
            add_length(HEADS | {"seed": seed}, HEAD_STEPS),
            prepare(task, seed, Transforms(**views)),
        ),
        train_once(add_length(scratch | {"seed": seed}, STEPS), data),
    )
    found = [lines.features, lines.patches, lines.features / lines.patches]
    found += [each["error"] for each in errors]
    return dict(zip(COLUMNS, (round(each, 2) for each in found), strict=True))


def prepare(task: str, seed: int, transforms: Transforms) -> PreparedData:
    source = MADE_GRAY.get(task, task)
    return prepare_task(source, 10, seed, transforms, IMAGES, gray=task in MADE_GRAY)


def add_length(recipe: dict[str, Any], steps: int) -> Recipe:
    schedule = {"name": "cosine", "epochs": steps * 96 // IMAGES, "rampup_epochs": 0}
    schedule |= {"warmup_epochs": 1.0, "warmup_from": 0.0}
    return Recipe.model_validate(recipe | {"schedule": schedule})


if __name__ == "__main__":
    main()
