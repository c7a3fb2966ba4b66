"""Which images a person should label first.

An image is worth labeling if many images near it are in doubt, and no image near it has a label
yet. With features x, doubt d and what is known so far, S:

    value(S) = Σ_j d_j · max_{i ∈ S} exp(−|x_i − x_j|² / s²)

where s² is the mean squared distance to the nearest labeled image. The image that adds most comes
next, as if those before it had been labeled: so the first k of the list are a good choice for
every k, and copies of one image are not asked for twice.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

CONSIDERED = 4000  # the images most in doubt; a matrix of their distances is held
PLANNED = 200  # are chosen so; after them, doubt alone decides


def labeling_order(doubt: Tensor, features: Tensor, labeled: Tensor) -> Tensor:
    """The images most worth a label, one after the other.

    Args:
        doubt: (n,) in [0, 1], how probable it is that the prediction is wrong.
        features: (n, D) of the same images; only their directions count.
        labeled: (m, D) of the images that have a label, at least one.

    Returns:
        (min(n, 200),) int64, places in ``doubt``, all different.

    Example:
        >>> doubt = torch.tensor([0.5, 0.4, 0.4])  # the last two alike, and unlike the first
        >>> features = torch.tensor([[0.9, 0.1], [0.0, 1.0], [0.0, 1.0]])
        >>> labeling_order(doubt, features, labeled=torch.tensor([[1.0, 0.0]])).tolist()
        [1, 0, 2]
    """
    x, known = (F.normalize(each.float(), dim=1) for each in (features, labeled))
    nearest = torch.stack([torch.cdist(x, part).amin(dim=1) for part in torch.split(known, 1000)])
    distance = nearest.amin(dim=0).square()
    scale = distance.mean().clamp(min=torch.finfo(torch.float32).tiny)
    covered, near = (-distance / scale).exp(), (-torch.cdist(x, x).square() / scale).exp()
    worth, chosen = (near - covered).clamp_(min=0) @ doubt.float(), []
    for _ in range(min(len(doubt), PLANNED)):
        chosen.append(_best(worth, near, covered, doubt.float()))
        worth[chosen[-1]] = -1
        covered = torch.maximum(covered, near[chosen[-1]])
    return torch.tensor(chosen)


def _best(worth: Tensor, near: Tensor, covered: Tensor, doubt: Tensor) -> int:
    """Which image adds most. What each adds only falls, so that few have to be asked again."""
    while True:
        best = int(worth.argmax())
        worth[best] = (near[best] - covered).clamp(min=0) @ doubt
        if int(worth.argmax()) == best:
            return best
