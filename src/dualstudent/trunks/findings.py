"""Images to look at, by their features: doubtful labels, lookalikes, and images unlike all."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualstudent.trunks.neighbors import find_neighbors, scale_to_unit

# Standardized features of different photos of clothes have cosines up to 0.83 with their nearest;
# those of mirrored, brighter and strongly compressed copies mostly 0.85 to 0.96.
_LEAST, _MOST = 0.85, 0.95
_SPREADS = 4  # between the usual nearest image and a copy
_UNUSUAL = 0.02  # share of the labeled images that are as far from all others


class Pairs(NamedTuple):
    """Pairs of vectors that are unusually similar, the most similar first.

    Attributes:
        indices: (m, 2) int64.
        similarity: (m,) their cosines.
    """

    indices: NDArray[np.int64]
    similarity: NDArray[np.float32]


def find_suspects(
    labels: NDArray[np.int64], probabilities: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Find labels that are probably wrong, those with the surest other answer first.

    A label is suspect if the answer is another class c, and at least as sure as usual for images
    with label c: p_c ≥ mean of p_c over them (confident learning, Northcutt et al. 2021).

    Args:
        labels: (n,) int64, the given classes.
        probabilities: (n, C), each row predicted without its label; NaN if unknown.

    Returns:
        (m,) int64, positions in ``labels``.

    Example:
        >>> find_suspects(np.array([0, 0, 1, 1]), np.array([[0.9, 0.1]] * 2 + [[0.1, 0.9]] * 2))
        array([], dtype=int64)
        >>> find_suspects(np.array([0, 1, 1, 1]), np.array([[0.8, 0.2]] * 2 + [[0.1, 0.9]] * 2))
        array([1])
    """
    rows = np.flatnonzero(~np.isnan(probabilities).any(axis=1))
    given, found = labels[rows], probabilities[rows]
    answers, sure = found.argmax(axis=1), found.max(axis=1)
    usual = np.full(found.shape[1], np.inf)  # no label of a class, nothing to compare with
    for label in np.unique(given):
        usual[label] = found[given == label, label].mean()
    suspect = np.flatnonzero((answers != given) & (sure >= usual[answers]))
    return rows[suspect[np.argsort(-sure[suspect], kind="stable")]]


def find_lookalikes(vectors: NDArray[np.float32]) -> Pairs:
    """Find images that are probably copies: mirrored, cropped a little, compressed or brighter.

    They are nearest to each other, with a cosine s > median + 4 (upper quartile − median) of all
    cosines with the nearest; but at least 0.85, and 0.95 is always enough. Vectors that are equal
    are left out: their images have the same pixels, or nearly so.

    Args:
        vectors: (N, d), standardized features.
    """
    if len(vectors) < 2:
        return Pairs(np.empty((0, 2), np.int64), np.empty(0, np.float32))
    found = find_neighbors(scale_to_unit(vectors), 1)
    nearest, similarity = found.indices[:, 0], found.similarity[:, 0]
    middle, upper = np.quantile(similarity, (0.5, 0.75))
    threshold = np.clip(middle + _SPREADS * (upper - middle), _LEAST, _MOST)
    equal = (vectors == vectors[nearest]).all(axis=1)
    rows = np.flatnonzero((similarity > threshold) & ~equal)
    pairs, first = np.unique(
        np.sort(np.stack([rows, nearest[rows]], axis=1), axis=1), axis=0, return_index=True
    )
    values = similarity[rows[first]]
    order = np.argsort(-values, kind="stable")
    return Pairs(pairs[order], values[order])


def find_unlike(
    vectors: NDArray[np.float32], labeled: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Find images that are unlike all labeled ones, the most unlike first.

    Such an image is farther from its nearest labeled image than 98 % of the labeled images are
    from theirs.

    Args:
        vectors: (N, d), features of images without a label.
        labeled: (n, d), features of those with one.

    Returns:
        (m,) int64, positions in ``vectors``, and (m,) the cosines with their nearest.
    """
    if len(labeled) < 2 or len(vectors) == 0:
        return np.empty(0, np.int64), np.empty(0, np.float32)
    known = scale_to_unit(labeled)
    usual = np.quantile(find_neighbors(known, 1).similarity, _UNUSUAL)
    similarity = find_neighbors(known, 1, scale_to_unit(vectors)).similarity[:, 0]
    rows = np.flatnonzero(similarity < usual)
    order = rows[np.argsort(similarity[rows], kind="stable")]
    return order, similarity[order]
