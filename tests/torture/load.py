"""Load: many predictions and a long training with flat memory, and four trainings at once.

    python -m tests.torture.load results/reliability --predictions 100000 --seconds 3600

Writes load.csv (memory and open files over time), load.png and load.json (the verdicts).
"""

import argparse
import csv
import json
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

from dualstudent import Callback, Predictor, Recipe, load_recipe, train
from dualstudent.grid import run_grid
from dualstudent.report.style import style_axes
from dualstudent.signals import Interrupted
from tests.torture.children import find_difference, tiny_recipe

IMAGES = 1000
MOST_GROWTH = 0.05  # of the memory between the second and the last tenth
Sample = tuple[str, float, int, float, int]


def sample(what: str, begun: float, done: int) -> Sample:
    """What is done, seconds, how much of it, memory in MB, open files."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    memory = pages * resource.getpagesize() / 1e6
    files = sum(1 for _ in Path("/proc/self/fd").iterdir())
    return what, time.monotonic() - begun, done, memory, files


def watch_predictions(count: int, folder: Path) -> Iterator[Sample]:
    run = train(tiny_recipe(), folder / "run")
    draw, paths = np.random.default_rng(0), []
    for number in range(IMAGES):
        paths.append(folder / f"{number}.png")
        Image.fromarray(draw.integers(0, 256, (8, 8), dtype=np.uint8)).save(paths[-1])
    predictor, begun = Predictor(run), time.monotonic()
    for done in range(IMAGES, count + 1, IMAGES):
        found = sum(len(part.paths) for part in predictor.predict(paths))
        assert found == IMAGES
        yield sample("predictions", begun, done)


class _Watch(Callback):
    """Takes samples at the end of epochs, and stops the training after some seconds."""

    def __init__(self, seconds: float) -> None:
        self.samples: list[Sample] = []
        self._begun, self._seconds = time.monotonic(), seconds

    def on_epoch(self, record: dict[str, Any]) -> None:
        if time.monotonic() - self._begun > len(self.samples) * self._seconds / 200:
            self.samples.append(sample("training", self._begun, record["epoch"]))

    def on_step(self, step: int) -> None:
        if time.monotonic() - self._begun > self._seconds:
            signal.raise_signal(signal.SIGTERM)


def watch_training(seconds: float, folder: Path) -> list[Sample]:
    watch = _Watch(seconds)
    endless = load_recipe(
        "digits", ["data.source=digits-8x8", "data.image_size=8", "schedule.epochs=1000000"]
    )
    try:
        train(endless, folder / "endless", watch)
    except Interrupted:
        return watch.samples
    raise RuntimeError("the training has ended by itself")


def compare_four_at_once(folder: Path) -> list[str | None]:
    """What differs in each of four runs at once from the same run alone; None if nothing."""
    recipes: dict[str, Recipe] = {
        f"seed-{seed}": tiny_recipe("dual-student", f"seed={seed}") for seed in range(4)
    }
    alone = run_grid(recipes, folder / "alone", workers=1)
    at_once = run_grid(recipes, folder / "at-once", workers=4)
    return [find_difference(at_once[name], alone[name]) for name in recipes]


def judge(samples: list[Sample]) -> dict[str, float | int | bool]:
    """Whether memory and open files stay flat after the first tenth, which warms up."""
    tenth = max(1, len(samples) // 10)
    first, last = samples[tenth : 2 * tenth] or samples, samples[-tenth:]
    before, after = (float(np.median([each[3] for each in part])) for part in (first, last))
    files = {each[4] for each in samples[tenth:]}
    growth = after / before - 1
    flat = growth < MOST_GROWTH and max(files) - min(files) <= 2
    return {
        "seconds": round(samples[-1][1], 1),
        "done": samples[-1][2],
        "flat": flat,
        "memory_mb": round(before, 1),
        "memory_mb_at_end": round(after, 1),
        "growth_percent": round(100 * growth, 2),
        "open_files": max(files),
    }


def draw(samples: list[Sample], path: Path) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(8, 2.6), layout="constrained")
    for axis, what in zip(axes, ("predictions", "training"), strict=True):
        chosen = [each for each in samples if each[0] == what]
        axis.plot([each[1] / 60 for each in chosen], [each[3] for each in chosen], label="MB")
        axis.plot([each[1] / 60 for each in chosen], [each[4] for each in chosen], label="files")
        style_axes(axis, what)
        axis.set(xlabel="minutes", ylim=(0, None))
        axis.legend()
    figure.savefig(path, dpi=150, facecolor="white")


def main() -> int:
    parser = argparse.ArgumentParser(description="Predict and train for long, and at once.")
    parser.add_argument("folder", type=Path, help="where the results go")
    parser.add_argument("--predictions", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=3600, help="of training")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        predicted = list(watch_predictions(options.predictions, folder))
        trained = watch_training(options.seconds, folder)
        differences = compare_four_at_once(folder)
    judged = {"predictions": judge(predicted), "training": judge(trained)}
    equal = differences.count(None)
    verdicts = json.dumps({**judged, "four_at_once_equal": equal}, indent=1)
    with (options.folder / "load.csv").open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["what", "seconds", "done", "memory_mb", "open_files"])
        rows.writerows((w, f"{s:.1f}", n, f"{m:.1f}", f) for w, s, n, m, f in predicted + trained)
    (options.folder / "load.json").write_text(verdicts + "\n")
    draw(predicted + trained, options.folder / "load.png")
    print(verdicts)
    return int(equal < len(differences) or not all(each["flat"] for each in judged.values()))


if __name__ == "__main__":
    sys.exit(main())
