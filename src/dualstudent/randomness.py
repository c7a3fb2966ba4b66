"""Randomness as a function, not a state.

Every random number of a run is a function of the run's seed and of what it is for: the step,
the view, the student. So a run's position is one integer, and a run that continues from any
step draws exactly what it would have drawn without the interruption.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def seed_for(*purpose: int | str) -> int:
    """A 63-bit seed that depends on every part of ``purpose`` and on nothing else.

    >>> seed_for(0, "step", 7) == seed_for(0, "step", 7) != seed_for(0, "step", 8)
    True
    """
    digest = hashlib.blake2b(repr(purpose).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def generator_for(*purpose: int | str, device: torch.device | str = "cpu") -> torch.Generator:
    """A fresh generator on ``device``, seeded by :func:`seed_for`."""
    return torch.Generator(device).manual_seed(seed_for(*purpose))


@contextmanager
def drawn_from(*purpose: int | str) -> Iterator[None]:
    """Run a block whose global random numbers depend on ``purpose`` only, and disturb no others.

    For code on the CPU that cannot be handed a generator, such as the initialisation of layers.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_for(*purpose))
        yield
