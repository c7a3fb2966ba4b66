"""Temperature scaling: one number that makes confidence honest and changes no answer.

Guo et al., On calibration of modern neural networks, ICML 2017: logits are divided by the T > 0
that minimizes the negative log-likelihood of held-out labels.
"""

import math
from dataclasses import replace

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor
from torch.nn import functional as F

from dualstudent.calibration.predicted import PredictedSet

LOWEST, HIGHEST = 0.01, 100.0


def fit_temperature(validation: PredictedSet) -> float:
    """The T in [0.01, 100] under which the labels of ``validation`` are the most likely.

    Above 1 for a network that is too sure. Fitted on the test set, it would make the figures
    of the test set too good: give it validation samples, which no training step has seen.

    Where every answer is right, no T is the best one, and the result is close to 0.01; that
    says that the set is too small, not that the network may be surer.
    """
    logs, labels = _logs(validation.probabilities), validation.labels

    def likelihood(log_temperature: float) -> float:
        # Convex in 1 / T, so that there is one valley in log T too.
        return F.cross_entropy(logs / math.exp(log_temperature), labels).item()

    bounds = (math.log(LOWEST), math.log(HIGHEST))
    found = minimize_scalar(likelihood, bounds=bounds, method="bounded", options={"xatol": 1e-6})
    return math.exp(found.x)


def recalibrate(predicted: PredictedSet, temperature: float) -> PredictedSet:
    """The same answers with the confidence of logits divided by ``temperature``.

    Example:
        >>> p, yes = torch.tensor([[0.9, 0.1]]), torch.tensor([True])
        >>> cooler = recalibrate(PredictedSet(p, torch.tensor([0]), yes, yes), 2.0)
        >>> cooler.probabilities  # 3 : 1, the root of 9 : 1
        tensor([[0.7500, 0.2500]])
    """
    return replace(predicted, probabilities=apply_temperature(predicted.probabilities, temperature))


def apply_temperature(probabilities: Tensor, temperature: float) -> Tensor:
    """(N, C) probabilities, of the same kind, as if logits were divided by ``temperature``."""
    if not temperature > 0:
        raise ValueError(f"temperature = {temperature}: use a positive number")
    softened = (_logs(probabilities) / temperature).softmax(dim=1)
    return softened.to(probabilities.dtype)


def _logs(probabilities: Tensor) -> Tensor:
    """Logits up to a constant per sample; an answer ruled out by rounding is only very unlikely."""
    return probabilities.double().clamp(min=torch.finfo(torch.float32).tiny).log()
