"""Which images to label first.

A label is worth most where many similar images are uncertain and none of them has a label yet.
With features x, uncertainty d and the labeled or already chosen images S:

    value(S) = Σ_j d_j · max_{i ∈ S} exp(−|x_i − x_j|² / s²)

where s² is the mean squared distance to the nearest labeled image. Images are chosen greedily:
the next one adds most to the value, as if all before it had been labeled. So the first k are a
good choice for every k, and copies of an image are not chosen twice.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from dualstudent.training.inference import run_inference
from dualstudent.training.trainer import Trainer

CONSIDERED = 4000  # the most uncertain images; the matrix of their distances is kept in memory
SELECTED = 200  # images chosen by value; those after them are sorted by uncertainty


def rank_for_labeling(trainer: Trainer, indices: Tensor, doubt: Tensor) -> Tensor:
    """Sort unlabeled samples, those most worth a label first.

    Args:
        trainer: a trained one.
        indices: (n,) int64, the training samples to sort.
        doubt: (n,) in [0, 1], probability that the prediction for each is wrong.

    Returns:
        (n,) int64, a permutation of 0 … n − 1: positions in ``indices``.
    """
    by_doubt = doubt.argsort(descending=True, stable=True)
    considered, labeled = by_doubt[:CONSIDERED], trainer.data.labeled
    every = math.ceil(len(labeled) / CONSIDERED)
    first = considered[
        select_for_labeling(
            doubt[considered],
            extract_features(trainer, indices[considered]),
            extract_features(trainer, labeled[::every]),
        )
    ]
    return torch.cat([first, by_doubt[~torch.isin(by_doubt, first)]])


def select_for_labeling(doubt: Tensor, features: Tensor, labeled: Tensor) -> Tensor:
    """Choose the images most worth a label, the best first.

    Args:
        doubt: (n,) in [0, 1], probability that the prediction for each image is wrong.
        features: (n, D) of the same images; they are normalized to length 1.
        labeled: (m, D), features of the m ≥ 1 labeled images.

    Returns:
        (min(n, 200),) int64, different positions in ``doubt``.

    Example:
        >>> doubt = torch.tensor([0.5, 0.4, 0.4])  # the last two are copies
        >>> features = torch.tensor([[0.9, 0.1], [0.0, 1.0], [0.0, 1.0]])
        >>> select_for_labeling(doubt, features, labeled=torch.tensor([[1.0, 0.0]])).tolist()
        [1, 0, 2]
    """
    x, known = (F.normalize(each.float(), dim=1) for each in (features, labeled))
    nearest = torch.stack([torch.cdist(x, part).amin(dim=1) for part in torch.split(known, 1000)])
    distance = nearest.amin(dim=0).square()
    scale = distance.mean().clamp(min=torch.finfo(torch.float32).tiny)
    covered, near = (-distance / scale).exp(), (-torch.cdist(x, x).square() / scale).exp()
    gain, chosen = (near - covered).clamp_(min=0) @ doubt.float(), []
    for _ in range(min(len(doubt), SELECTED)):
        chosen.append(_find_best(gain, near, covered, doubt.float()))
        gain[chosen[-1]] = -1
        covered = torch.maximum(covered, near[chosen[-1]])
    return torch.tensor(chosen)


def _find_best(gain: Tensor, near: Tensor, covered: Tensor, doubt: Tensor) -> int:
    """The image that adds most; ``gain`` is updated lazily, as gains only ever fall."""
    while True:
        best = int(gain.argmax())
        gain[best] = (near[best] - covered).clamp(min=0) @ doubt
        if int(gain.argmax()) == best:
            return best


def extract_features(trainer: Trainer, indices: Tensor) -> Tensor:
    """(n, D) features of clean training samples by the exported network, on the CPU.

    Unreadable samples are skipped. The result is held in memory at once.
    """
    network = trainer.method.evaluated[trainer.method.exported]
    samples, device = trainer.data.train, trainer.fabric.device
    found = run_inference({"exported": network}, samples, indices, None, device)
    return torch.cat([outputs.clean["exported"].features.cpu() for outputs in found])
