"""When does a pretrained trunk help? By logistic regression beforehand, and by FixMatch afterwards.

    python benchmarks/trunk_or_pixels.py      # about 20 minutes on one core

`dualstudent train --data` uses a trunk if logistic regression on its features is wrong at most 0.6
times as often as on pixels, on labels that were hidden once each. Is that a good rule? This
measures the ratio, and the error of FixMatch on features and from scratch, with the recipes that
are chosen. 10 labels a class, 1,500 images, validation images from the training part. It can be
stopped at any time and continues when called again. Writes `results/trunk-or-pixels/`.
"""

from pathlib import Path

import torch

from choose_defaults import train_once
from dualstudent import PreparedData, Transforms
from dualstudent.recipes.chooser import ImageFacts, choose_recipe
from dualstudent.recipes.reading import validate
from dualstudent.settings import Table
from dualstudent.training.trunk_choice import try_trunk
from dualstudent.trunks.trunk import TrunkSettings
from tables import run_trials, write_table
from validation_tasks import MAY_BE_MIRRORED, TASKS, prepare_task

RESULTS = Path(__file__).parents[1] / "results" / "trunk-or-pixels"
IMAGES, STEPS = 1_500, 500
TRUNK = {"name": "efficientnet-lite0", "weak_views": 2, "strong_views": 2}
MADE_GRAY = {"clothing, 32 px, gray": "clothing, 32 px"}
COLUMNS = ("trunk, line", "pixels, line", "ratio", "trunk, FixMatch", "scratch, FixMatch")


def main() -> None:
    torch.set_num_threads(1)
    trials = [{"task": task, "seed": 0} for task in (*TASKS, *MADE_GRAY)]
    rows = run_trials(RESULTS / "trials.csv", trials, try_task)
    write_table(
        RESULTS / "table.md",
        ["validation error in %", *COLUMNS],
        [[row["task"], *(row[column] for column in COLUMNS)] for row in rows],
    )


def try_task(task: str, seed: int) -> dict[str, float]:
    data = prepare(task, seed, Transforms())
    pixels = data.train.read_pixels(data.labeled)
    assert pixels is not None
    settings = TrunkSettings.model_validate(TRUNK)
    lines = try_trunk(pixels, data.labels[data.labeled], settings, seed)
    assert lines is not None
    on_features, from_scratch = (
        train_on(task, seed, data, wanted)
        for wanted in ({"trunk": TRUNK}, {"schedule": {"epochs": STEPS * 96 // IMAGES}})
    )
    found = (lines.features, lines.pixels, lines.features / lines.pixels, on_features, from_scratch)
    return dict(zip(COLUMNS, (round(each, 2) for each in found), strict=True))


def prepare(task: str, seed: int, transforms: Transforms) -> PreparedData:
    source = MADE_GRAY.get(task, task)
    return prepare_task(source, 10, seed, transforms, IMAGES, gray=task in MADE_GRAY)


def train_on(task: str, seed: int, data: PreparedData, wanted: Table) -> float:
    """The validation error of what is chosen for these images."""
    channels, size = data.train.shape[:2]
    facts = ImageFacts(
        channels,
        size,
        len(data.labeled),
        len(data.unlabeled),
        MADE_GRAY.get(task, task) in MAY_BE_MIRRORED,
        None,
        on_features="trunk" in wanted,
    )
    table = choose_recipe(facts, wanted | {"seed": seed, "data": {}}).table
    recipe = validate(table, task)
    return train_once(recipe, prepare(task, seed, recipe.transforms))["error"]


if __name__ == "__main__":
    main()
