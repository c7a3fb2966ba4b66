"""Classifiers of scikit-learn on the labels and images of a comparison: what else one would try."""

import json
import time
import warnings
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from sklearn.svm import SVC
from torch import Tensor

from dualstudent.atomic import atomic_write
from dualstudent.data.prepare import prepare
from dualstudent.data.prepared import PreparedData
from dualstudent.data.samples import Samples
from dualstudent.data.transforms.resize import resize
from dualstudent.errors import UserError
from dualstudent.experiments.comparison import Comparison, name_labels
from dualstudent.experiments.schema import Cell
from dualstudent.recipes.schema import Recipe
from dualstudent.signals import Interrupted, StopRequest
from dualstudent.training.on_features import read_features
from dualstudent.training.trunk import use_trunk
from dualstudent.trunks.baselines import choose_training, find_inverse_penalty
from dualstudent.trunks.samples import KeptFeatures

Record: TypeAlias = dict[str, Any]  # a line of runs.csv

BASELINES = ("logistic regression", "SVM", "label spreading", "self-training")
EXPLANATION = (
    "Baselines of scikit-learn, on clean images of at most 32 pixels a side, or on the features "
    "of the trunk: logistic regression; a support vector machine (RBF kernel), label spreading (10 "
    "nearest neighbors) and self-training (logistic regression, threshold 0.8) on 50 principal "
    "components of the training images. They use up to 10,000 of the unlabeled images."
)
_MOST_PIXELS = 32  # bounds memory
_COMPONENTS, _NEIGHBORS = 50, 10
_PIECE = 1024  # images that are read at a time
_DATA = "data"  # key of the fingerprint of the images and labels


def measure_baselines(comparison: Comparison) -> dict[Cell, list[Record]]:
    """Measure every baseline on each draw of labels; what was measured before is kept.

    Raises:
        Interrupted: after Ctrl-C, SIGTERM or SIGHUP; what is measured has been saved.
        UserError: if own images have changed since.
    """
    folder = comparison.request.folder / "baselines"
    folder.mkdir(parents=True, exist_ok=True)
    columns = dict.fromkeys(cell.column for cell in comparison.recipes)
    found: dict[Cell, list[Record]] = {Cell(row, c): [] for c in columns for row in BASELINES}
    with StopRequest() as stop:
        for column in columns:
            for recipe in comparison.draws_of(column):
                for record in _measure_draw(recipe, folder):
                    found[Cell(record["method"], column)].append(record)
                    if stop.received:
                        raise Interrupted(stop.received, "some baselines", "the same command")
    return found


def predict(
    name: str,
    training: NDArray[np.float32],
    labels: NDArray[np.int64],
    test: NDArray[np.float32],
    inverse_penalty: float = 1.0,
) -> NDArray[np.int64]:
    """Train a baseline and return its classes of the test images. Equal arguments, equal classes.

    Args:
        name: one of ``BASELINES``.
        training: (N, d) pixel values in [0, 1], or features.
        labels: (N,) int64, −1 where unknown.
        test: (n, d).
        inverse_penalty: of logistic regression.
    """
    if name != "logistic regression":
        components = PCA(min(_COMPONENTS, *training.shape), random_state=0).fit(training)
        training, test = components.transform(training), components.transform(test)
    known = labels >= 0
    if name in ("logistic regression", "SVM"):
        training, labels = training[known], labels[known]
    with warnings.catch_warnings(action="ignore"):  # about iterations and missing unlabeled images
        model = _build(name, len(training), inverse_penalty).fit(training, labels)
        classes: NDArray[np.int64] = model.predict(test)
    return classes


def _build(name: str, count: int, inverse_penalty: float) -> Any:
    logistic = LogisticRegression(C=inverse_penalty, max_iter=1000)
    return {
        "logistic regression": logistic,
        "SVM": SVC(C=10),
        "label spreading": LabelSpreading("knn", n_neighbors=min(_NEIGHBORS, count), max_iter=100),
        "self-training": SelfTrainingClassifier(logistic, threshold=0.8),
    }[name]


def _measure_draw(recipe: Recipe, folder: Path) -> Iterator[Record]:
    """The record of each baseline on one draw of labels."""
    draw = _Draw(recipe)
    for name in BASELINES:
        file = folder / f"{name.replace(' ', '-')}-{name_labels(recipe)}-draw{recipe.seed}.json"
        kept = json.loads(file.read_text("utf-8")) if file.is_file() else {}
        of_own = recipe.data.path is not None
        if not kept or (of_own and _DATA not in kept):  # an earlier version did not note them
            kept = draw.measure(name)
            with atomic_write(file) as partial:
                partial.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
        if kept.pop(_DATA, None) != draw.fingerprint:
            raise UserError(
                f"{file}: was measured on other images or labels than those found now; bring them "
                f"back, delete {folder} to measure all again, or choose another folder (--out)"
            )
        yield kept | {"run": str(file)}


class _Draw:
    """One draw of labels; its data are prepared only if something of them is missing."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe

    @cached_property
    def fingerprint(self) -> str | None:
        """Of own images; None for published ones, which do not change."""
        return None if self._recipe.data.path is None else self._images.fingerprint()

    @cached_property
    def _images(self) -> PreparedData:
        recipe = self._recipe
        return prepare(recipe.data, recipe.seed, recipe.transforms, recipe.normalization)

    @cached_property
    def _data(self) -> PreparedData:
        return use_trunk(self._recipe, self._images)

    @cached_property
    def _samples(self) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32]]:
        return _read_samples(self._data, self._recipe.seed)

    @cached_property
    def _penalty(self) -> float:
        return 1.0 if self._recipe.trunk is None else find_inverse_penalty(self._samples[0])

    def measure(self, name: str) -> Record:
        """Measure a baseline."""
        recipe, samples, penalty = self._recipe, self._samples, self._penalty
        start = time.perf_counter()
        wrong = predict(name, *samples, penalty) != self._data.test_labels.numpy()
        return {
            "method": name,
            "labels": recipe.data.labels,
            "split_seed": recipe.data.split_seed,
            "seed": recipe.seed,
            "error": 100 * float(wrong.mean()),
            "seconds": time.perf_counter() - start,
            "steps": 0,
            "epochs": 0,
            _DATA: self.fingerprint,
        }


def _read_samples(
    data: PreparedData, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32]]:
    """Training samples, their labels, and test samples, as :func:`predict` takes them."""
    training = choose_training(data, seed)
    return (
        _read_vectors(data.train, training),
        data.labels[training].numpy(),
        _read_vectors(data.test, torch.arange(len(data.test))),
    )


def _read_vectors(samples: Samples, indices: Tensor) -> NDArray[np.float32]:
    """Features, or clean images as vectors of pixel values in [0, 1]."""
    if isinstance(samples, KeptFeatures):
        return read_features(samples, indices)
    size = min(samples.shape[-1], _MOST_PIXELS)
    pieces = []
    for some in torch.split(indices, _PIECE):
        pixels = samples.read_pixels(some)
        if pixels is None:
            raise UserError("--baselines needs images; leave it out")
        pieces.append(resize(pixels, size).flatten(1).numpy() / np.float32(255))
    return np.concatenate(pieces)
