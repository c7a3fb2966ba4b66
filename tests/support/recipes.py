"""A run of seconds on real digits."""

from dualstudent import Recipe, load_recipe

SMALL = (
    "data.image_size=8",
    "data.source=digits-8x8",
    "batch.size=64",
    "batch.labeled=16",
    "schedule.epochs=2",
    "schedule.rampup_epochs=1",
    "transforms.weak.translate=1",
)


def small_recipe(*changes: str) -> Recipe:
    """Dual Student on 50 of the 8 × 8 digits: 2 epochs of 29 steps."""
    return load_recipe("digits", [*SMALL, *changes])
