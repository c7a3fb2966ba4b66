"""How many labels does `dualstudent teach` save? Labels are given by a script that knows them.

    python benchmarks/teach.py $DUALSTUDENT_DATA/clothing             # as reported
    python benchmarks/teach.py $DUALSTUDENT_DATA/clothing --tune      # on validation images
    python benchmarks/teach.py --estimate     # one seed on digits: is the estimate right?

The choice, the training and the sample that measures it are those of the page, without the page:
after every five labels the model is trained again, every fourth question is of the uniform
sample. `random` has the same model, but its labels are drawn at random; `random, line` has logistic
regression on the same features instead. The test images lie among the others, without a label, and
are never asked for. With --tune they are not there at all; a fifth of the others is judged instead.
It can be stopped, and goes on when called again. Writes `results/teach/`, `docs/images/teach.png`.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from numpy.typing import NDArray

from dualstudent import load_mnist_5k
from dualstudent.data.images.cache import decode_images
from dualstudent.data.images.own import list_images
from dualstudent.report.style import save_picture, style_axes
from dualstudent.teach.estimate import Estimate
from dualstudent.teach.features import Extractor, PatchExtractor, TrunkExtractor
from dualstudent.teach.learning import Learner, Question
from dualstudent.teach.questions import arrange_questions
from dualstudent.teach.worker import EVERY
from dualstudent.trunks.baselines import BASELINES, predict_baseline
from dualstudent.trunks.trunk import TrunkSettings
from tables import read_csv, write_csv

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "teach"
SEEDS, TUNED = range(3), range(100, 103)
LABELS = (20, 30, 40, 50, 60, 80, 100, 120, 150, 200)
SIZE = 160
LOOP, RANDOM, LINE = "teach", "random", "random, line"
MEASURED = ("labels", "accuracy", "estimate", "low", "high", "measured", "unlabeled", "seconds")
BLANK = dict.fromkeys(("data", "way", "seed", *MEASURED), "")


class ReportedLearner(Learner):
    """Judges the sample only where that is reported; what it asks for does not depend on it."""

    def _judge(
        self,
        labels: NDArray[np.int64],
        known: NDArray[np.int64],
        in_sample: NDArray[np.bool_],
        classes: int,
        check: Callable[[], None],
    ) -> NDArray[np.float64]:
        if len(known) not in LABELS:
            return np.full((len(known), classes), 1 / classes)
        return super()._judge(labels, known, in_sample, classes, check)


@dataclass(frozen=True)
class Task:
    """The features of all images, their labels, and which of them only judge."""

    learner: Learner
    labels: NDArray[np.int64]
    judging: NDArray[np.bool_]

    @property
    def classes(self) -> int:
        return int(self.labels.max()) + 1

    def score(self, probabilities: NDArray[np.float64]) -> float:
        right = probabilities.argmax(axis=1) == self.labels
        return 100 * float(right[self.judging].mean())


def load_clothing(folder: Path) -> tuple[Extractor, torch.Tensor, NDArray[Any], NDArray[Any]]:
    images = decode_images(list_images(folder), SIZE, 3)
    listing = images.listing
    pixels = torch.from_numpy(images.pixels[images.rows])
    is_test = np.array([part == "test" for part in listing.parts])
    trunk = TrunkExtractor(TrunkSettings(name="efficientnet-lite0", image_size=SIZE), 3)
    return trunk, pixels, np.array(listing.labels), is_test


def load_digits(folder: Path) -> tuple[Extractor, torch.Tensor, NDArray[Any], NDArray[Any]]:
    parts = [load_mnist_5k(part) for part in ("train", "test")]
    labels = torch.cat([part.labels for part in parts]).numpy()
    pixels = torch.cat([part.pixels for part in parts])
    return PatchExtractor(), pixels, labels, np.arange(len(labels)) >= len(parts[0])


SETS: dict[str, Callable[..., tuple[Extractor, torch.Tensor, NDArray[Any], NDArray[Any]]]] = {
    "mnist-5k": load_digits,
    "clothing": load_clothing,
}


def prepare(name: str, folder: Path, tune: bool) -> Task:
    extractor, pixels, labels, is_test = SETS[name](folder)
    judging = is_test
    if tune:
        pixels, labels = pixels[~is_test], labels[~is_test]
        judging = np.random.default_rng(0).permutation(len(labels)) < len(labels) // 5
    order = np.random.default_rng(1).permutation(len(labels))  # as the program has them
    pixels, labels, judging = pixels[order], labels[order], judging[order]
    learner = ReportedLearner(extractor.uses_line)
    learner.use(np.arange(len(labels)), extractor.extract(pixels))
    return Task(learner, labels, judging)


def teach(task: Task, seed: int) -> list[dict[str, Any]]:
    """Answer what the loop asks for; a row whenever one of the numbers of labels is reached."""
    pool = np.random.default_rng(seed).permutation(np.flatnonzero(~task.judging))
    sample = pool[: min(400, len(pool) // 4)].tolist()
    others, known, rows = set(pool.tolist()) - set(sample), list[int](), list[dict[str, Any]]()
    while True:
        question = Question(
            len(known),
            {number: int(task.labels[number]) for number in known},
            tuple(map(str, range(task.classes))),
            frozenset(set(sample) & set(known)),
            frozenset(others - set(known)),
        )
        answer = task.learner.learn(question)
        if len(known) in LABELS:
            found = answer.predicted == task.labels
            rest = [number for number in pool.tolist() if number not in known]
            rows.append(
                {
                    "labels": len(known),
                    "accuracy": 100 * float(found[task.judging].mean()),
                    **describe_estimate(answer.estimate),
                    "unlabeled": 100 * float(found[rest].mean()),
                    "seconds": round(answer.seconds, 2),
                }
            )
        if len(known) >= LABELS[-1]:
            return rows
        left = [number for number in sample if number not in known]
        sampled = len(sample) - len(left)
        known += arrange_questions(answer.order, left, len(known), sampled, EVERY)


def describe_estimate(found: Estimate | None) -> dict[str, Any]:
    if found is None:  # too few images of the sample
        return {}
    shares = {"estimate": found.accuracy, "low": found.low, "high": found.high}
    return {name: 100 * share for name, share in shares.items()} | {"measured": found.measured}


def label_at_random(task: Task, seed: int, by_line: bool) -> list[dict[str, Any]]:
    pool, rows = np.random.default_rng(seed).permutation(np.flatnonzero(~task.judging)), []
    for count in LABELS:
        labels = np.full(len(task.labels), -1)
        labels[pool[:count]] = task.labels[pool[:count]]
        vectors, classes = task.learner.vectors, task.classes
        found = (
            predict_baseline(BASELINES[0], vectors, labels, vectors, classes)
            if by_line
            else task.learner.predict(labels, classes)
        )
        rows.append({"labels": count, "accuracy": task.score(found)})
    return rows


WAYS: dict[str, Callable[[Task, int], list[dict[str, Any]]]] = {
    LOOP: teach,
    RANDOM: lambda task, seed: label_at_random(task, seed, by_line=False),
    LINE: lambda task, seed: label_at_random(task, seed, by_line=True),
}


def average(rows: list[dict[str, Any]], data: str, way: str) -> dict[int, tuple[float, float]]:
    """Number of labels → mean and standard deviation of the accuracy."""
    mine = [row for row in rows if (row["data"], row["way"]) == (data, way)]
    found = {}
    for count in LABELS:
        values = [float(row["accuracy"]) for row in mine if int(row["labels"]) == count]
        found[count] = (float(np.mean(values)), float(np.std(values, ddof=1)))
    return found


def draw(rows: list[dict[str, Any]], stem: Path) -> None:
    figure, both = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
    names = {LOOP: "dualstudent teach", RANDOM: "at random", LINE: "at random, logistic regression"}
    for axes, data in zip(both, SETS, strict=True):
        for (way, name), color in zip(
            names.items(), ("#0067a5", "#c8500a", "#5d6470"), strict=True
        ):
            found = average(rows, data, way)
            mean, std = np.array(list(found.values())).T
            axes.plot(LABELS, mean, label=name, color=color, lw=2)
            axes.fill_between(LABELS, mean - std, mean + std, color=color, alpha=0.15, lw=0)
        style_axes(axes, data)
        axes.set_xlabel("labels")
    both[0].set_ylabel("test accuracy, %")
    both[1].legend(frameon=False, loc="lower right")
    save_picture(figure, stem)
    stem.with_name(f"{stem.name}.svg").unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "clothing", type=Path, nargs="?", help="folder with clothing/train, clothing/test"
    )
    parser.add_argument("--estimate", action="store_true", help="only one seed on digits")
    parser.add_argument("--tune", action="store_true", help="judge by validation images")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.estimate:
        trial = {"data": "mnist-5k", "way": LOOP, "seed": "0"}
        task = prepare("mnist-5k", Path(), tune=False)
        write_csv(RESULTS / "estimate.csv", [BLANK | trial | row for row in teach(task, 0)])
        return
    path = RESULTS / ("tuning.csv" if arguments.tune else "accuracy.csv")
    rows: list[dict[str, Any]] = read_csv(path) if path.exists() else []
    for data in SETS:
        task = prepare(data, arguments.clothing, arguments.tune)
        for way, run in WAYS.items():
            for seed in TUNED if arguments.tune else SEEDS:
                trial = {"data": data, "way": way, "seed": str(seed)}
                if not any(trial.items() <= row.items() for row in rows):
                    rows += [BLANK | trial | row for row in run(task, seed)]
                    write_csv(path, rows)
            print(
                data,
                way,
                {k: round(v[0], 1) for k, v in average(rows, data, way).items()},
                flush=True,
            )
    if not arguments.tune:
        draw(rows, ROOT / "docs" / "images" / "teach")


if __name__ == "__main__":
    main()
