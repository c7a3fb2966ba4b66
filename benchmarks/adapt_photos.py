"""From photos to drawings: adaptation on the features of a pretrained trunk.

    python benchmarks/adapt_photos.py      # about 10 minutes of one core, most of it for features

The source are photos of clothes, the target is made of other photos: their edges, dark on white.
Every fourth photo of `clothing/train` in $DUALSTUDENT_DATA is of the source, with its label, and
every fourth of the target, without; the test are the drawings of `clothing/test`. Features by
EfficientNet-Lite0 at 160 px, with two weak views. All methods have the same head with one hidden
layer and the same number of steps in each stage; nothing was tuned on these images. It can be
stopped at any time and continues when called again. Writes `results/adapt-photos/`.
"""

import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageFilter, ImageOps

from choose_defaults import train_once
from dualstudent import PreparedData, Recipe, Transforms, prepare_arrays
from tables import run_trials, spread, write_table
from validation_tasks import read_photos

RESULTS = Path(__file__).parents[1] / "results" / "adapt-photos"
SIZE, SEEDS, EPOCHS = 160, 3, 20
SMOOTHED = {"label_smoothing": 0.1}
SOURCE = {"name": "supervised", **SMOOTHED}
SHOT = {"name": "shot", "source_share": 0.0}
PAIR = {"consistency_weight": 1, "stabilization_weight": 10, "classification_average": "labeled"}

# name → whether the labels are those of the target, and the methods of the stages
METHODS: dict[str, tuple[bool, list[dict[str, Any]]]] = {
    "source only": (False, [SOURCE]),
    "self-ensembling": (False, [SOURCE, {"name": "self-ensembling", **SMOOTHED}]),
    "SHOT": (False, [SOURCE, SHOT]),
    "Dual Student": (False, [SOURCE | {"students": 2}, {"name": "dual-student", **PAIR}]),
    "Dual Student + SHOT": (
        False,
        [SOURCE | {"students": 2}, {"name": "dual-student+shot", **PAIR, **SMOOTHED}],
    ),
    "target labels": (True, [SOURCE]),
}


def main() -> None:
    torch.set_num_threads(1)
    trials = [{"method": name, "seed": seed} for seed in range(SEEDS) for name in METHODS]
    rows = run_trials(RESULTS / "trials.csv", trials, measure)
    cells = []
    for name in METHODS:
        found = [100 - float(row["error"]) for row in rows if row["method"] == name]
        cells.append([name, spread(found), str(len(found))])
    write_table(RESULTS / "table.md", ["", "accuracy on drawings in %", "seeds"], cells)


def measure(method: str, seed: int) -> dict[str, float]:
    knows_target, methods = METHODS[method]
    return train_once(describe(methods, seed), prepare(knows_target))


def describe(methods: list[dict[str, Any]], seed: int) -> Recipe:
    """The recipe of some stages, of equally many epochs each."""
    stages = [{"name": f"stage {n}", "method": each} for n, each in enumerate(methods, 1)]
    return Recipe.model_validate(
        {
            "seed": seed,
            "data": {},
            "trunk": {"name": "efficientnet-lite0", "weak_views": 2, "precision": "bf16-true"},
            "network": {"name": "mlp", "hidden": [256], "batch_norm": "by-domain"},
            "method": methods[-1],
            "batch": {"size": 128, "labeled": 32},
            "optimizer": {"name": "sgd", "learning_rate": 0.01, "weight_decay": 5e-4},
            "schedule": {"name": "cosine", "epochs": EPOCHS, "rampup_epochs": 0},
            "ema": {"decay": 0.99},
            "stages": stages,
        }
    )


@cache
def prepare(knows_target: bool) -> PreparedData:
    """Photos and drawings; labels of the photos, or of the drawings to see what can be reached."""
    folder = Path(os.environ["DUALSTUDENT_DATA"]) / "clothing"
    photos, labels = read_photos(folder / "train", SIZE)
    seen, other = slice(0, None, 4), slice(2, None, 4)
    images = np.concatenate([photos[seen], draw(photos[other])])
    hidden = np.full(len(labels[other]), -1)
    known = np.concatenate([labels[seen], labels[other] if knows_target else hidden])
    domains = np.repeat([1, -1], [len(labels[seen]), len(labels[other])])
    tested, truth = read_photos(folder / "test", SIZE)
    weak = {"flip": True, "affine": [10, 0.15, 0.1, 0.05]}
    views = Transforms.model_validate({"weak": weak})
    return prepare_arrays(images, known, (draw(tested), truth), views, sample_domain=domains)


def draw(photos: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The edges of photos (N, H, W, 3) as dark lines on white, in three equal channels."""

    def draw_one(photo: NDArray[np.uint8]) -> NDArray[np.uint8]:
        gray = Image.fromarray(photo).convert("L").filter(ImageFilter.GaussianBlur(1))
        lines = ImageOps.invert(ImageOps.autocontrast(gray.filter(ImageFilter.FIND_EDGES)))
        return np.asarray(lines.convert("RGB"))

    return np.stack([draw_one(photo) for photo in photos])


if __name__ == "__main__":
    main()
