"""Labels that spread along a graph of similar images (Zhou et al. 2004)."""

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dualstudent.trunks.neighbors import find_neighbors, scale_to_unit

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Vectors: TypeAlias = NDArray[np.float32]
Labels: TypeAlias = NDArray[np.int64]
Probabilities: TypeAlias = NDArray[np.float64]

NEIGHBORS = 10
_SHARPNESS = 3  # a weight is a cosine to this power
_SPREAD, _STEPS = 0.9, 50  # 0.9⁵⁰ < 0.6 %: what further steps could change


class NeighborGraph:
    """The graph of some images and their nearest ones, in both directions.

    Args:
        vectors: (N, d), their features; two or more.

    Example:
        >>> graph = NeighborGraph(np.float32([[1, 0], [0, 1], [0.9, 0.1]]))
        >>> graph.spread(np.array([0, 1, -1]), classes=2).argmax(axis=1).tolist()
        [0, 1, 0]
    """

    def __init__(self, vectors: Vectors) -> None:
        from scipy.sparse import diags_array

        graph = _build_graph(vectors)
        scale = diags_array(1 / np.sqrt(graph.sum(axis=1)))
        self._walk = scale @ graph @ scale

    def spread(self, labels: Labels, classes: int) -> Probabilities:
        """Let labels spread; returns class probabilities (N, C).

        Z ← α S Z + (1 − α) Y with S = D^(−½) W D^(−½), where W holds the weights of the graph, D
        its row sums, and Y the labels, of each class with sum 1.

        Args:
            labels: (N,) int64, −1 where unknown.
            classes: number of classes, C.
        """
        given = np.zeros((len(labels), classes))
        known = np.flatnonzero(labels >= 0)
        given[known] = to_one_hot(labels[known], classes)
        given /= np.maximum(given.sum(axis=0), 1)  # a class with more labels spreads no further
        spread = given
        for _ in range(_STEPS):
            spread = _SPREAD * (self._walk @ spread) + (1 - _SPREAD) * given
        return _normalize(spread)


def ask_neighbors(
    vectors: Vectors, answers: Probabilities, asked: Vectors, count: int
) -> Probabilities:
    """Average the answers (N, C) of the nearest vectors, weighted by similarity."""
    found = find_neighbors(scale_to_unit(vectors), count, scale_to_unit(asked))
    weights = _weigh(found.similarity)
    return _normalize(np.einsum("nk,nkc->nc", weights, answers[found.indices]))


def to_one_hot(labels: Labels, classes: int) -> Probabilities:
    """Return (n, C): 1 at the label of each row, else 0."""
    return np.eye(classes)[labels]


def _build_graph(vectors: Vectors) -> "csr_array":
    """(N, N), sparse and symmetric: the weight of each image and its nearest ones."""
    from scipy.sparse import csr_array

    found = find_neighbors(scale_to_unit(vectors), NEIGHBORS)
    count, each = found.indices.shape
    starts = np.arange(0, count * each + 1, each)
    weights = _weigh(found.similarity).ravel()
    graph = csr_array((weights, found.indices.ravel(), starts), (count, count))
    return graph.maximum(graph.T).tocsr()


def _weigh(similarity: NDArray[np.float32]) -> NDArray[np.float64]:
    """Positive weights that fall with the angle; also unlike neighbors count a little."""
    return np.maximum(similarity.astype(np.float64), 1e-3) ** _SHARPNESS


def _normalize(votes: Probabilities) -> Probabilities:
    """Scale rows to sum 1; where no label reaches, all classes are equally likely."""
    total = votes.sum(axis=1, keepdims=True)
    return np.where(total > 0, votes / np.where(total > 0, total, 1), 1 / votes.shape[1])
