"""Classifiers that learn from feature vectors in seconds: what else one would try."""

from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from dualstudent.data.prepared import PreparedData
from dualstudent.generators import make_generator
from dualstudent.trunks.neighbors import find_neighbors, scale_to_unit

Vectors: TypeAlias = NDArray[np.float32]
Labels: TypeAlias = NDArray[np.int64]
Probabilities: TypeAlias = NDArray[np.float64]

BASELINES = ("logistic regression", "nearest neighbors", "label propagation")
MOST_UNLABELED = 10_000  # bounds time and memory

_VOTERS = 5  # nearest labeled images
_NEIGHBORS, _SHARPNESS = 10, 3  # of the graph: a weight is a cosine to this power
_SPREAD, _STEPS = 0.9, 50  # 0.9⁵⁰ < 0.6 %: what further steps could change


def choose_training(data: PreparedData, seed: int) -> Tensor:
    """Choose what a baseline learns from: all labeled, and up to 10,000 unlabeled samples."""
    unlabeled = data.unlabeled[data.labels[data.unlabeled] < 0]
    order = torch.randperm(len(unlabeled), generator=make_generator(seed, "baselines"))
    return torch.cat([data.labeled, unlabeled[order[:MOST_UNLABELED]]])


def predict_baseline(
    name: str, vectors: Vectors, labels: Labels, asked: Vectors, classes: int
) -> Probabilities:
    """Learn by a baseline and return its class probabilities. Equal arguments, equal answers.

    Args:
        name: one of ``BASELINES``.
        vectors: (N, d), the features of training images; only label propagation uses those
            without a label.
        labels: (N,) int64, −1 where unknown; of two classes or more.
        asked: (n, d), the features of the images to classify.
        classes: number of classes, C.

    Returns:
        (n, C); the rows sum to 1.

    Example:
        >>> vectors = np.float32([[1, 0], [0, 1], [0.9, 0.1]])
        >>> labels = np.array([0, 1, -1])
        >>> found = predict_baseline("nearest neighbors", vectors, labels, vectors, classes=2)
        >>> found.argmax(axis=1).tolist()
        [0, 1, 0]
    """
    known = labels >= 0
    if name == "label propagation":
        return _propagate_labels(vectors, labels, asked, classes)
    if name == "nearest neighbors":
        return _ask_neighbors(vectors[known], _one_hot(labels[known], classes), asked, _VOTERS)
    return _fit_line(vectors[known], labels[known], asked, classes)


def find_inverse_penalty(vectors: Vectors) -> float:
    """Return C of logistic regression for standardized features (N, d).

    1 / 100 for the 1,280 of EfficientNet; with the usual 1, the error on clothes is 0.6 points
    higher. Fewer features are shorter vectors, and need larger weights.
    """
    features: int = vectors.shape[1]
    return 12.8 / features


def _fit_line(vectors: Vectors, labels: Labels, asked: Vectors, classes: int) -> Probabilities:
    line = LogisticRegression(C=find_inverse_penalty(vectors), max_iter=1000).fit(vectors, labels)
    found = np.zeros((len(asked), classes))
    found[:, line.classes_] = line.predict_proba(asked)
    return found


def _ask_neighbors(
    vectors: Vectors, answers: Probabilities, asked: Vectors, count: int
) -> Probabilities:
    """Average the answers (N, C) of the nearest vectors, weighted by similarity."""
    found = find_neighbors(scale_to_unit(vectors), count, scale_to_unit(asked))
    weights = _weigh(found.similarity)
    votes = np.einsum("nk,nkc->nc", weights, answers[found.indices])
    return _normalize(votes)


def _propagate_labels(
    vectors: Vectors, labels: Labels, asked: Vectors, classes: int
) -> Probabilities:
    """Let labels spread along a graph of neighbors (Zhou et al. 2004), then ask neighbors in it.

    Z ← α S Z + (1 − α) Y with S = D^(−½) W D^(−½), where W holds a weight for each image and its
    nearest ones, in both directions, D its row sums, and Y the labels, of each class with sum 1.
    """
    graph = _build_graph(vectors)
    scale = sparse.diags_array(1 / np.sqrt(graph.sum(axis=1)))
    walk = scale @ graph @ scale
    given = np.zeros((len(labels), classes))
    known = np.flatnonzero(labels >= 0)
    given[known] = _one_hot(labels[known], classes)
    given /= np.maximum(given.sum(axis=0), 1)  # a class with more labels does not spread further
    spread = given
    for _ in range(_STEPS):
        spread = _SPREAD * (walk @ spread) + (1 - _SPREAD) * given
    return _ask_neighbors(vectors, _normalize(spread), asked, _NEIGHBORS)


def _build_graph(vectors: Vectors) -> sparse.csr_array:
    """(N, N), sparse and symmetric: the weight of each image and its nearest ones."""
    found = find_neighbors(scale_to_unit(vectors), _NEIGHBORS)
    count, each = found.indices.shape
    starts = np.arange(0, count * each + 1, each)
    weights = _weigh(found.similarity).ravel()
    graph = sparse.csr_array((weights, found.indices.ravel(), starts), (count, count))
    return graph.maximum(graph.T).tocsr()


def _weigh(similarity: NDArray[np.float32]) -> NDArray[np.float64]:
    """Positive weights that fall with the angle; also unlike neighbors count a little."""
    return np.maximum(similarity.astype(np.float64), 1e-3) ** _SHARPNESS


def _one_hot(labels: Labels, classes: int) -> Probabilities:
    return np.eye(classes)[labels]


def _normalize(votes: Probabilities) -> Probabilities:
    """Scale rows to sum 1; where no label reaches, all classes are equally likely."""
    total = votes.sum(axis=1, keepdims=True)
    return np.where(total > 0, votes / np.where(total > 0, total, 1), 1 / votes.shape[1])
