"""Pseudo-labels by class centroids, from SHOT.

Liang et al., Do we really need to access the source data? Source hypothesis transfer for
unsupervised domain adaptation, ICML 2020, section 3.3.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

_SMALL = 1e-8


@torch.no_grad()
def label_by_centroids(features: Tensor, probabilities: Tensor) -> Tensor:
    """Label samples by the nearest of the class centroids, by the angle between them.

    The first centroids are means of all samples, weighted by the probability of the class; the
    second ones are means of the samples that the first ones label. Vectors have length 1, after a
    1 was appended, as in the authors' program. A class without samples labels none.

    Args:
        features: (n, D).
        probabilities: (n, C), predictions for the same samples.

    Returns:
        (n,) int64.

    Example:
        >>> features = torch.tensor([[3.0, 0.0], [2.0, 0.5], [0.0, 3.0], [0.1, 2.0]])
        >>> predicted = torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.1, 0.9], [0.2, 0.8]])
        >>> label_by_centroids(features, predicted)
        tensor([0, 0, 1, 1])
    """
    vectors = F.normalize(F.pad(features.float(), (0, 1), value=1.0))
    labels = _find_nearest(vectors, probabilities.float())
    return _find_nearest(vectors, F.one_hot(labels, probabilities.shape[1]).float())


def _find_nearest(vectors: Tensor, weights: Tensor) -> Tensor:
    """Return the class of the nearest centroid: (n,).

    Args:
        vectors: (n, D) of length 1.
        weights: (n, C), how much each sample counts for the centroid of each class.
    """
    totals = weights.sum(dim=0)
    centroids = weights.T @ vectors / (totals[:, None] + _SMALL)
    nearness = vectors @ F.normalize(centroids).T
    return nearness.masked_fill(totals == 0, -torch.inf).argmax(dim=1)
