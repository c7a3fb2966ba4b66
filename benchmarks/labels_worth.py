"""What unlabeled samples are worth on feature vectors, beside what people would use instead.

    python benchmarks/labels_worth.py        # about 6 minutes on one core

scikit-learn's digits as vectors of 64 features: three quarters to train, of which a few have a
label, and a quarter to test, drawn anew for every seed. All classifiers see the same labels; those
of scikit-learn keep their defaults, but for what stands here.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

from dualstudent import DualStudentClassifier
from tables import spread, write_csv, write_table

LABELS = (20, 50, 100, 200)
SEEDS = range(5)
CLASSIFIERS: dict[str, Callable[[int], Any]] = {
    "Dual Student": lambda seed: DualStudentClassifier(random_state=seed),
    "the same network, labels only": lambda seed: DualStudentClassifier(
        method="supervised", random_state=seed
    ),
    "LabelSpreading (7 neighbours)": lambda seed: make_pipeline(
        StandardScaler(), LabelSpreading(kernel="knn", n_neighbors=7, max_iter=200)
    ),
    "SelfTrainingClassifier (logistic)": lambda seed: make_pipeline(
        StandardScaler(), SelfTrainingClassifier(LogisticRegression(max_iter=2000))
    ),
}
RESULTS = Path(__file__).parents[1] / "results" / "labels-worth"


def accuracy(name: str, labels: int, seed: int) -> float:
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, random_state=seed, stratify=y)
    chosen, _ = train_test_split(
        np.arange(len(y)), train_size=labels, random_state=seed, stratify=y
    )
    known = np.full_like(y, -1)
    known[chosen] = y[chosen]
    return 100 * float(CLASSIFIERS[name](seed).fit(X, known).score(X_test, y_test))


def main() -> None:
    torch.set_num_threads(1)
    found = {
        name: [[accuracy(name, labels, seed) for seed in SEEDS] for labels in LABELS]
        for name in CLASSIFIERS
    }
    write_csv(
        RESULTS / "accuracy.csv",
        [
            {"classifier": name, "labels": labels, "seed": seed, "accuracy": round(value, 2)}
            for name, columns in found.items()
            for labels, values in zip(LABELS, columns, strict=True)
            for seed, value in zip(SEEDS, values, strict=True)
        ],
    )
    write_table(
        RESULTS / "table.md",
        ["accuracy in %", *(f"{labels} labels" for labels in LABELS)],
        [[name, *map(spread, columns)] for name, columns in found.items()],
    )


if __name__ == "__main__":
    main()
