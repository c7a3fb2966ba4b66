"""What unlabeled samples are worth, beside what people would use instead.

    python benchmarks/labels_worth.py        # goes on where it was stopped

Two sets of real digits. MNIST: 4,000 images of 28 × 28 pixels to train, 1,000 to test.
scikit-learn's: vectors of 64 features, three quarters to train and a quarter to test, drawn anew
for every seed. A few of the training samples, drawn by seed, have a label; all classifiers see the
same ones. Those of scikit-learn keep their defaults, but for what stands here; they see images as
vectors of pixels. Labels alone are also tried with many more labels: where that curve reaches the
other is what the unlabeled samples are worth.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

from dualstudent import DualStudentClassifier, load_mnist_5k
from tables import light_frame, read_csv, spread, write_csv, write_table

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "labels-worth"
FEW = (20, 50, 100, 200)
OURS, ALONE = "Dual Student", "the same network, labels only"

Array = NDArray[Any]
Split = tuple[Array, Array, Array, Array]  # X, y, X_test, y_test


@dataclass(frozen=True)
class Digits:
    """A data set, and how long our classifier learns on it."""

    title: str
    split: Callable[[int], Split]
    epochs: int
    seeds: range
    more: tuple[int, ...]  # labels, for labels alone


def mnist_images(seed: int) -> Split:
    train, test = load_mnist_5k("train"), load_mnist_5k("test")
    parts = (train.pixels[:, 0], train.labels, test.pixels[:, 0], test.labels)
    return tuple(part.numpy() for part in parts)  # type: ignore[return-value]


def digit_vectors(seed: int) -> Split:
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, random_state=seed, stratify=y)
    return X, y, X_test, y_test


DATA = {
    "images": Digits("MNIST digits, images", mnist_images, 20, range(3), (500, 1000)),
    "vectors": Digits("scikit-learn's digits, vectors", digit_vectors, 100, range(5), (400, 800)),
}


def flat(X: Array) -> Array:
    return X.reshape(len(X), -1)


def classifier(name: str, epochs: int, seed: int) -> Any:
    before = (FunctionTransformer(flat), StandardScaler())
    if name == OURS:
        return DualStudentClassifier("dual-student", epochs=epochs, random_state=seed)
    if name == ALONE:
        return DualStudentClassifier("supervised", epochs=epochs, random_state=seed)
    if name == "LabelSpreading (7 neighbors)":
        return make_pipeline(*before, LabelSpreading(kernel="knn", n_neighbors=7, max_iter=200))
    return make_pipeline(*before, SelfTrainingClassifier(LogisticRegression(max_iter=2000)))


CLASSIFIERS = (OURS, ALONE, "LabelSpreading (7 neighbors)", "SelfTrainingClassifier (logistic)")


def cells() -> Iterator[tuple[str, str, int, int]]:
    for name, digits in DATA.items():
        for seed in digits.seeds:
            for who in CLASSIFIERS:
                for labels in (*FEW, *(digits.more if who == ALONE else ())):
                    yield name, who, labels, seed


def accuracy(name: str, who: str, labels: int, seed: int) -> float:
    X, y, X_test, y_test = DATA[name].split(seed)
    chosen, _ = train_test_split(
        np.arange(len(y)), train_size=labels, random_state=seed, stratify=y
    )
    known = np.full_like(y, -1)
    known[chosen] = y[chosen]
    learned = classifier(who, DATA[name].epochs, seed).fit(X, known)
    return 100 * float(learned.score(X_test, y_test))


def main() -> None:
    torch.set_num_threads(1)
    path = RESULTS / "accuracy.csv"
    rows = read_csv(path) if path.is_file() else []
    done = {(row["data"], row["classifier"], int(row["labels"]), int(row["seed"])) for row in rows}
    for cell in cells():
        if cell not in done:
            found = f"{accuracy(*cell):.2f}"
            keys = ("data", "classifier", "labels", "seed", "accuracy")
            rows.append(dict(zip(keys, (*cell, found), strict=True)))
            write_csv(path, rows)
            print(*cell, found, sep=", ", flush=True)
    for name in DATA:
        show_table(name, rows)
    draw(rows)


def figures(rows: list[dict[str, Any]], name: str, who: str) -> dict[int, list[float]]:
    """Number of labels → accuracies, one a seed."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if (row["data"], row["classifier"]) == (name, who):
            found.setdefault(int(row["labels"]), []).append(float(row["accuracy"]))
    return dict(sorted(found.items()))


def worth(rows: list[dict[str, Any]], name: str, labels: int) -> str:
    """How many labels alone reach what ours reaches with few, by interpolation in log labels."""
    alone = {count: fmean(values) for count, values in figures(rows, name, ALONE).items()}
    ours = fmean(figures(rows, name, OURS)[labels])
    counts, reached = list(alone), np.maximum.accumulate(list(alone.values()))
    if ours > reached[-1]:
        return f"more than {counts[-1]}"
    return f"{np.exp(np.interp(ours, reached, np.log(counts))):.0f}"


def show_table(name: str, rows: list[dict[str, Any]]) -> None:
    counts = (*FEW, *DATA[name].more)
    lines = []
    for who in CLASSIFIERS:
        found = figures(rows, name, who)
        lines.append([who, *(spread(found[n]) if n in found else "" for n in counts)])
    lines.append(
        ["labels alone that do as well as Dual Student", *(worth(rows, name, n) for n in FEW)]
        + [""] * len(DATA[name].more)
    )
    heads = ["accuracy in %", *(f"{n} labels" for n in counts)]
    write_table(RESULTS / f"{name}.md", heads, lines)


def draw(rows: list[dict[str, Any]]) -> None:
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    for axes, (name, digits) in zip(figure.subplots(1, 2), DATA.items(), strict=True):
        for number, who in enumerate(CLASSIFIERS):
            found = figures(rows, name, who)
            mean = np.array([fmean(values) for values in found.values()])
            low, high = (np.array([f(v) for v in found.values()]) for f in (min, max))
            axes.plot(list(found), mean, marker="o", ms=4, label=who, color=f"C{number}")
            axes.fill_between(list(found), low, high, alpha=0.12, color=f"C{number}", lw=0)
        light_frame(axes, digits.title)
        axes.set_xscale("log")
        axes.set_xticks([*FEW, *digits.more], [str(n) for n in (*FEW, *digits.more)])
        axes.minorticks_off()
        axes.set_xlabel("labels")
    axes.legend(frameon=False, loc="lower right", fontsize=8)
    figure.axes[0].set_ylabel("accuracy in %, mean and range")
    figure.savefig(ROOT / "docs" / "images" / "labels-worth.png", dpi=150, facecolor="white")


if __name__ == "__main__":
    main()
