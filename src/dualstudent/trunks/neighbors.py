"""The most similar feature vectors, by the cosine of their angle, in bounded memory."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Neighbors(NamedTuple):
    """The k most similar of N vectors for each of n vectors, the most similar first.

    Attributes:
        similarity: (n, k) cosines in [−1, 1].
        indices: (n, k) int64, which of the N vectors.
    """

    similarity: NDArray[np.float32]
    indices: NDArray[np.int64]


def scale_to_unit(vectors: NDArray[Any]) -> NDArray[np.float32]:
    """Scale vectors (N, d) to length 1; vectors of zeros stay as they are."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def find_neighbors(
    vectors: NDArray[np.float32], count: int, asked: NDArray[np.float32] | None = None
) -> Neighbors:
    """Find the most similar vectors; all pairs are compared, block by block.

    Args:
        vectors: (N, d) of length 1, to search in.
        count: neighbors of each vector; fewer if there are not so many.
        asked: (n, d) of length 1, whose neighbors are wanted; default: ``vectors``, none of which
            is its own neighbor.

    Example:
        >>> found = find_neighbors(np.eye(2, dtype=np.float32), 1, np.float32([[0.6, 0.8]]))
        >>> found.indices.tolist(), found.similarity.round(3).tolist()
        ([[1]], [[0.800000011920929]])
    """
    from sklearn.neighbors import NearestNeighbors

    most = len(vectors) - (asked is None)
    search = NearestNeighbors(n_neighbors=min(count, most), algorithm="brute").fit(vectors)
    distances, indices = search.kneighbors(asked)
    return Neighbors((1 - distances.astype(np.float32) ** 2 / 2), indices)
