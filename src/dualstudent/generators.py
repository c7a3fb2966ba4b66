"""Random generators that are functions of the seed and a purpose, without any state.

Every random number of a run depends only on the seed of the run and on its purpose: the step,
the view, the student. So a run that continues from a checkpoint draws exactly what it would
have drawn without the interruption.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def derive_seed(*purpose: int | str) -> int:
    """Derive a 63-bit seed from all parts of ``purpose``.

    Example:
        >>> derive_seed(0, "step", 7) == derive_seed(0, "step", 7) != derive_seed(0, "step", 8)
        True
    """
    digest = hashlib.blake2b(repr(purpose).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def make_generator(*purpose: int | str, device: torch.device | str = "cpu") -> torch.Generator:
    """Make a new generator on ``device``, seeded by all parts of ``purpose``.

    Args:
        purpose: a seed, and names or numbers that distinguish its uses.
        device: device of the generator.

    Example:
        >>> first, again = (make_generator(0, "views", 7) for _ in range(2))
        >>> torch.equal(torch.rand(3, generator=first), torch.rand(3, generator=again))
        True
    """
    return torch.Generator(device).manual_seed(derive_seed(*purpose))


def seed_rng(*purpose: int | str) -> None:
    """Seed the global generators, also those of GPUs, by ``purpose``.

    Example:
        >>> seed_rng(0, "step", 7)
        >>> torch.initial_seed() == derive_seed(0, "step", 7)
        True
    """
    # Without a GPU, torch.manual_seed notes its stack for the case that one comes, which takes as
    # long as a small step.
    seed_all = torch.accelerator.is_available()
    (torch if seed_all else torch.default_generator).manual_seed(derive_seed(*purpose))


@contextmanager
def preserve_rng() -> Iterator[None]:
    """Restore the state of all global generators, also those of GPUs, after the block."""
    # fork_rng handles one kind of GPU only, but torch.manual_seed seeds all.
    on_mps = torch.mps.get_rng_state() if torch.backends.mps.is_available() else None
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            yield
    finally:
        if on_mps is not None:
            torch.mps.set_rng_state(on_mps)


@contextmanager
def seeded_rng(*purpose: int | str) -> Iterator[None]:
    """Seed the global generators for the block by ``purpose``; restore their state afterwards.

    For code that takes no generator, such as the initialization of layers.
    """
    with preserve_rng():
        seed_rng(*purpose)
        yield
