"""Exponential moving averages of the weights of a network (Eq. 2).

Tarvainen & Valpola, Mean teachers are better role models: Weight-averaged consistency targets
improve semi-supervised deep learning results, NeurIPS 2017.
"""

import copy
from typing import TypeVar

import torch
from torch import nn

Network = TypeVar("Network", bound=nn.Module)


def copy_without_gradient(network: Network) -> Network:
    """Copy a network, with its memory layout; the parameters of the copy need no gradient."""
    return copy.deepcopy(network).requires_grad_(False)


def start_up_decay(step: int, decay: float) -> float:
    """Return min(1 − 1/(t+1), decay) after t steps: a plain mean at first, then the EMA.

    Otherwise the initial weights would dominate the average for too long.

    Args:
        step: the step just taken, counted from 0, so that t = ``step`` + 1.
        decay: α of Eq. 2, in [0, 1).

    Example:
        >>> [round(start_up_decay(step, decay=0.7), 2) for step in range(4)]
        [0.5, 0.67, 0.7, 0.7]
    """
    return min(1 - 1 / (step + 2), decay)


@torch.no_grad()
def update_ema(teacher: nn.Module, student: nn.Module, decay: float) -> None:
    """Eq. 2, θ′ₜ = α θ′ₜ₋₁ + (1 − α) θₜ, in place.

    Parameters are averaged as stored: with weight normalization, direction and length are
    averaged separately. Buffers are not changed: a teacher that runs in training mode has its
    own batch-norm statistics.

    Args:
        teacher: θ′.
        student: θ, a network of the same structure.
        decay: α, in [0, 1]; 0 copies the student, 1 changes nothing.

    Example:
        >>> student, teacher = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
        >>> _ = nn.init.constant_(student.weight, 1), nn.init.constant_(teacher.weight, 0)
        >>> update_ema(teacher, student, decay=0.75)
        >>> teacher.weight.item()
        0.25
    """
    averages, current = tuple(teacher.parameters()), tuple(student.parameters())
    torch._foreach_lerp_(averages, current, 1 - decay)
