"""Predictions with every kind of trouble: overconfident, uneven classes, ties."""

import torch

from dualstudent.calibration import PredictedSet

CLASSES = ("cat", "dog", "emu", "fox")


def made(samples: int = 500, sharpness: float = 3.0, seed: int = 0) -> PredictedSet:
    draw = torch.Generator().manual_seed(seed)
    logits = sharpness * torch.randn(samples, len(CLASSES), generator=draw)
    noise = sharpness * torch.randn(samples, len(CLASSES), generator=draw)
    labels = (logits + noise).argmax(dim=1)
    labels[labels == 2] = 0  # no sample is truly an emu
    probabilities = (logits.softmax(dim=1) * 50).round().clamp(min=1)  # many equal ones
    probabilities = probabilities / probabilities.sum(dim=1, keepdim=True)
    stable = torch.rand(samples, generator=draw) < probabilities.amax(dim=1)
    agree = torch.rand(samples, generator=draw) < 0.7
    return PredictedSet(probabilities, labels, stable, agree)
