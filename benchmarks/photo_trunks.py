"""Which trunk, at which size? By logistic regression on the features of clean photos.

    python benchmarks/photo_trunks.py      # about 2.5 minutes of one core

Ten draws of 3 and of 10 labels a class from four fifths of `clothing/train`; accuracy on the last
fifth, in percent. The trunks compute in bfloat16. It can be stopped at any time and continues when
called again. Writes `results/photos/trunks.csv`. The folder is read from $DUALSTUDENT_DATA.
"""

import os
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from dualstudent import TrunkSettings, build_trunk
from tables import run_trials
from validation_tasks import read_photos

RESULTS = Path(__file__).parents[1] / "results" / "photos"
TRUNKS = (("0", 160), ("0", 224), ("2", 224), ("0+2", 224))
SMALLEST = 192  # short side of the photos
DRAWS = 10


def main() -> None:
    torch.set_num_threads(1)
    trials = [
        {"EfficientNet-Lite": numbers, "size": size, "labels a class": labels}
        for numbers, size in TRUNKS
        for labels in (3, 10)
    ]
    run_trials(RESULTS / "trunks.csv", trials, lambda **trial: try_trunk(*trial.values()))


def try_trunk(numbers: str, size: int, per_class: int) -> dict[str, float]:
    parts, (labels, *_) = zip(
        *(compute_features(number, size) for number in numbers.split("+")), strict=True
    )
    vectors = np.concatenate(parts, axis=1)
    order = np.random.default_rng(1).permutation(len(labels))
    pool, held_out = np.split(order, [4 * len(order) // 5])
    vectors = vectors - vectors[pool].mean(axis=0)
    vectors *= np.sqrt(1280 / vectors.shape[1]) / np.sqrt(vectors[pool].var(axis=0).mean())
    found = []
    for draw in range(DRAWS):
        chance = np.random.default_rng(100 + draw)
        kinds = [pool[labels[pool] == kind] for kind in range(labels.max() + 1)]
        chosen = np.concatenate([chance.permutation(kind)[:per_class] for kind in kinds])
        line = LogisticRegression(C=0.01, max_iter=500).fit(vectors[chosen], labels[chosen])
        found.append(100 * line.score(vectors[held_out], labels[held_out]))
    return {"accuracy": round(np.mean(found), 2), "deviation": round(np.std(found, ddof=1), 2)}


@cache
@torch.inference_mode()
def compute_features(number: str, size: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    folder = Path(os.environ["DUALSTUDENT_DATA"]) / "clothing" / "train"
    photos, labels = read_photos(folder, min(size, SMALLEST))
    name = f"efficientnet-lite{number}"
    settings = TrunkSettings.model_validate({"name": name, "image_size": size})
    trunk = build_trunk(settings, 3).convert("bf16-true")
    pieces = torch.split(torch.from_numpy(photos).permute(0, 3, 1, 2), 4)
    found = [trunk((piece.float() - 127) / 128) for piece in pieces]
    return torch.cat(found).half().float().numpy(), labels


if __name__ == "__main__":
    main()
