"""Temperature scaling: calibrates confidence without changing the predicted classes.

Guo et al., On calibration of modern neural networks, ICML 2017: logits are divided by the T > 0
that minimizes the negative log-likelihood of held-out labels.
"""

import math
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from dualstudent.calibration.predicted import PredictedSet

LOWEST, HIGHEST = 0.01, 100.0


def fit_temperature(validation: PredictedSet) -> float:
    """The T in [0.01, 100] that maximizes the likelihood of the labels.

    T > 1 means that the network is overconfident. If all predictions are correct, the set is too
    small to fit T, and the result is close to 0.01.

    Args:
        validation: samples that were not used for training. Not the test set: its calibration
            error would come out too low.
    """
    from scipy.optimize import minimize_scalar

    logs, labels = _logs(validation.probabilities), validation.labels

    def loss(log_temperature: float) -> float:
        # Convex in 1 / T, so it has a single minimum in log T as well.
        return F.cross_entropy(logs / math.exp(log_temperature), labels).item()

    bounds = (math.log(LOWEST), math.log(HIGHEST))
    found = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-6})
    return math.exp(found.x)


def recalibrate(predicted: PredictedSet, temperature: float) -> PredictedSet:
    """The same predictions with logits divided by ``temperature``.

    Example:
        >>> p, yes = torch.tensor([[0.9, 0.1]]), torch.tensor([True])
        >>> cooler = recalibrate(PredictedSet(p, torch.tensor([0]), yes, yes), 2.0)
        >>> cooler.probabilities  # 9 : 1 becomes √9 : 1
        tensor([[0.7500, 0.2500]])
    """
    return replace(predicted, probabilities=apply_temperature(predicted.probabilities, temperature))


def apply_temperature(probabilities: Tensor, temperature: float) -> Tensor:
    """(N, C) probabilities as if the logits had been divided by ``temperature`` > 0."""
    if not temperature > 0:
        raise ValueError(f"temperature = {temperature}: use a positive number")
    softened = (_logs(probabilities) / temperature).softmax(dim=1)
    return softened.to(probabilities.dtype)


def _logs(probabilities: Tensor) -> Tensor:
    """Logits up to a constant per sample; probabilities that were rounded to 0 stay finite."""
    return probabilities.double().clamp(min=torch.finfo(torch.float32).tiny).log()
