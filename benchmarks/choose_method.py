"""Which method should be chosen for small gray images that nobody has seen? The table of trials.

    python benchmarks/choose_method.py --task SVHN --methods 'fixmatch;as chosen' --seeds 3
    python benchmarks/choose_method.py --count    # what is found of the shares of the classes

Every method as `dualstudent train --data` would train it on a CPU, all that it chooses included,
but half as long: 3,000 steps were the default before these trials made it 6,000. 10 labels a
class, up to 6,000 unlabeled images, 28 or 32 pixels a side, gray; error on validation images from
the training part, test parts are never read; two minutes of one core a trial. It can be stopped at
any time and continues when called again. Writes `results/methods/`.
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from choose_defaults import train_once
from dualstudent import PreparedData, Recipe, Transforms
from dualstudent.batch import count_epoch_steps
from dualstudent.data.transforms.color_cue import color_matters
from dualstudent.data.transforms.symmetry import may_be_mirrored
from dualstudent.recipes.chooser import ImageFacts, choose_recipe
from dualstudent.recipes.reading import validate
from dualstudent.trunks.shares import ClassShares, estimate_image_shares
from tables import read_csv, run_trials, spread, spread_of_differences, write_csv, write_table
from validation_tasks import prepare_task

RESULTS = Path(__file__).parents[1] / "results" / "methods"
# name → the task, and how it is changed
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "SVHN": ("SVHN", {}),
    "CIFAR-10": ("CIFAR-10", {}),
    "clothing": ("clothing, 32 px", {}),
    "clothing, even": ("clothing, 32 px", {"ratio": 1}),
    "mnist-5k": ("mnist-5k", {}),
    "mnist-5k, uneven": ("mnist-5k", {"ratio": 10}),
    "mnist-5k, noisy": ("mnist-5k", {"noise": 0.6}),
    "mnist-5k, noisy, uneven": ("mnist-5k", {"noise": 0.6, "ratio": 10}),
}
IN_COLOR: dict[str, tuple[str, dict[str, Any]]] = {
    f"{name}, tint {tint}": (name, {"gray": False, "tint": tint})
    for tint in (0, 0.02, 0.05)
    for name in ("CIFAR-10", "SVHN", "clothing, 32 px")
}
CHOSEN = "fixmatch"
METHODS: dict[str, dict[str, Any]] = {
    CHOSEN: {"name": "fixmatch", "distribution_alignment": False},
    "fixmatch, aligned": {"name": "fixmatch", "distribution_alignment": True},
    "as chosen": {"name": "fixmatch"},  # aligned where the shares of the classes are known
    "adamatch": {"name": "adamatch"},
    "softmatch": {"name": "softmatch"},
    "flexmatch": {"name": "flexmatch"},
    "freematch": {"name": "freematch"},
    "supervised, strong views": {"name": "supervised", "view": "strong"},
}
# FixMatch with one change each; lengths are factors of 3,000 steps
VARIANTS: dict[str, dict[str, Any]] = {
    "fixmatch, learning rate 0.1": {"optimizer": {"learning_rate": 0.1}},  # in place of 0.2
    "fixmatch, twice as wide": {"network": {"widths": [32, 64, 128]}},  # in place of 16, 32, 64
    "fixmatch, averaged weights": {"ema": {"decay": 0.999}},
}
STEPS = 3_000
LENGTHS = {"fixmatch, 2 times as long": 2, "fixmatch, 4 times as long": 4}
PER_CLASS = {"fixmatch, 8 labels a class": 8}  # 10 otherwise; validation would hold out two


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--task", choices=TASKS, help="this one only, beside other processes")
    parser.add_argument("--methods", default=";".join(METHODS), help="by their names, with ';'")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--count", action="store_true", help="count classes, train nothing")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.count:
        count_classes(asked.seeds)
        return
    for task in [asked.task] if asked.task else TASKS:
        trials = [
            {"task": task, "method": method, "seed": seed}
            for seed in range(asked.seeds)
            for method in asked.methods.split(";")
        ]
        run_trials(find_file(task), trials, try_method)
    write_results()


def find_file(task: str) -> Path:
    return RESULTS / f"{task.replace(', ', '-').lower()}.csv"


def try_method(task: str, method: str, seed: int) -> dict[str, float]:
    wanted = {"method": METHODS.get(method, METHODS[CHOSEN])} | VARIANTS.get(method, {})
    steps = STEPS * LENGTHS.get(method, 1)
    return train_once(*choose_for(task, wanted, seed, steps, PER_CLASS.get(method, 10)))


def choose_for(
    task: str, wanted: dict[str, Any], seed: int, steps: float = STEPS, per_class: int = 10
) -> tuple[Recipe, PreparedData]:
    """The recipe that `train --data` would choose, but for what is wanted, and its data."""
    name, changes = (TASKS | IN_COLOR)[task]
    prepare = partial(prepare_task, name, per_class, seed, **({"gray": True} | changes))
    facts = state_facts(prepare(transforms=Transforms()))
    batch = choose_recipe(facts, wanted).table["batch"]
    counts = (facts.labeled, facts.unlabeled, batch["size"], batch["labeled"])
    epochs = round(steps / count_epoch_steps(*counts))
    table = choose_recipe(facts, wanted | {"schedule": {"epochs": epochs}}).table
    recipe = validate(table | {"data": {}, "seed": seed}, f"chosen for {task}")
    return recipe, prepare(transforms=recipe.transforms)


def count_classes(seeds: int) -> None:
    """Write how the classes are spread, as far as 10 labels a class tell, for every task."""
    rows = []
    for task, (name, changes) in TASKS.items():
        for seed in range(seeds):
            found = find_shares(prepare_task(name, 10, seed, Transforms(), gray=True, **changes))
            assert found is not None
            verdict = "even" if found.is_even else "uneven"
            if found.trusted is None:
                verdict = "not told"
            figures = {
                "deviation": found.deviation,
                "distance_from_even": found.distance,
                "chance": found.chance,
            }
            rounded = {key: round(value, 3) for key, value in figures.items()}
            rows.append({"task": task, "seed": seed} | rounded | {"verdict": verdict})
    write_csv(RESULTS / "shares.csv", rows)


def find_shares(data: PreparedData) -> ClassShares | None:
    return estimate_image_shares(partial(read_pixels, data), data.labels, len(data.classes))


def read_pixels(data: PreparedData, positions: Tensor) -> Tensor:
    return cast(Tensor, data.train.read_pixels(positions))


def state_facts(data: PreparedData) -> ImageFacts:
    pixels, shares = read_pixels(data, data.labeled), find_shares(data)
    labels = data.labels[data.labeled]
    return ImageFacts(
        channels=pixels.shape[1],
        size=pixels.shape[-1],
        labeled=len(data.labeled),
        unlabeled=len(data.unlabeled),
        may_be_mirrored=may_be_mirrored(pixels, labels),
        color_matters=color_matters(pixels, labels),
        gpu=None,
        shares=shares.trusted if shares else None,
    )


def write_results() -> None:
    """A row per method; what all methods of a task have in common are the seeds."""
    rows = [row for task in TASKS if find_file(task).exists() for row in read_csv(find_file(task))]

    def select(task: str, method: str) -> dict[str, float]:
        found = (row for row in rows if (row["task"], row["method"]) == (task, method))
        return {row["seed"]: float(row["error"]) for row in found}

    table = []
    for method in (*METHODS, *VARIANTS, *LENGTHS, *PER_CLASS):
        cells = [method]
        for task in TASKS:
            errors, others = select(task, method), select(task, CHOSEN)
            both = sorted(errors.keys() & others.keys())
            cells.append(spread(list(errors.values())) if errors else "")
            pairs = [[each[seed] for seed in both] for each in (errors, others)]
            cells.append(spread_of_differences(*pairs) if both and method != CHOSEN else "")
        table.append(cells)
    heads = [head for task in TASKS for head in (task, f"minus {CHOSEN}")]
    write_table(RESULTS / "table.md", ["validation error in %", *heads], table)


if __name__ == "__main__":
    main()
