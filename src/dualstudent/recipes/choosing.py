"""A recipe for own images, chosen from what a check found, with a reason for every choice."""

from dataclasses import dataclass
from typing import Any

from dualstudent.data.check import DataCheck
from dualstudent.data.splits import share_of_class

_STEPS = {"cpu": 2_000, "cuda": 20_000}
_SIZES = {"cpu": (32, 64), "cuda": (32, 64, 128, 224)}
_PHOTO = 128  # pixels a side from which on details need a network for photos
_LABELED, _UNLABELED = 32, 96  # of a batch, as in the demo
_LABELS_TO_SPARE, _VALIDATION = 10, 0.2
_FEWEST_EPOCHS, _TESTS = 2, 20


@dataclass(frozen=True)
class Choice:
    """A recipe, not checked yet, and why it is as it is.

    Attributes:
        table: of the recipe, without where the images are.
        reasons: setting → why it is as it is.
    """

    table: dict[str, Any]
    reasons: dict[str, str]


def choose_recipe(check: DataCheck, cuda: bool, epochs: int | None = None) -> Choice:
    """What suits the images of a check on this machine.

    Args:
        check: of the images.
        cuda: whether a GPU computes; without, everything is so small that a CPU finishes.
        epochs: as the user wants them; ramp-up and tests are spread over them.
    """
    device = "cuda" if cuda else "cpu"
    size = _image_size(check.typical, _SIZES[device])
    network, fits = _network(check.is_grey, size, cuda)
    labeled, validation, held_out = _validation(check)
    batch, per_epoch = _batch(labeled, check.unlabeled)
    epochs = epochs or max(_FEWEST_EPOCHS, round(_STEPS[device] / per_epoch))
    channels = 1 if check.is_grey else 3
    table: dict[str, Any] = {
        "data": {"image_size": size, "channels": channels, "validation": validation},
        "augmentation": {"translate": size // 12, "noise": 0.15 if check.is_grey else 0.0},
        "network": {"name": network},
        "method": {
            "name": "dual-student",
            "consistency_weight": 10,
            "stabilization_weight": 100,
            "confidence_threshold": 0.6,
            "classification_average": "labeled",
        },
        "batch": batch,
        "optimizer": {"learning_rate": 0.1},
        "schedule": {"epochs": epochs, "rampup_epochs": epochs / 4},
        "evaluation": {"every": max(1, epochs // _TESTS)},
    }
    return Choice(
        table,
        {
            "data.image_size": f"the short side of half of the images is {check.typical} or more",
            "data.channels": f"the images are {'grey' if check.is_grey else 'in colour'}",
            "data.validation": held_out,
            "network.name": fits,
            "batch.size": f"{check.unlabeled:,} unlabeled images",
            "batch.labeled": f"{labeled:,} labels to train with",
            "schedule.epochs": f"about {epochs * per_epoch:,} steps",
            "augmentation.flip": "mirrored digits and text mean something else; if yours do not, "
            "--set augmentation.flip=true",
        },
    )


def _image_size(typical: int, sizes: tuple[int, ...]) -> int:
    """Small images nearly as they are, larger ones at the largest size that enlarges none."""
    if typical <= sizes[0]:
        return max(16, 4 * round(typical / 4))
    return max(size for size in sizes if size <= typical)


def _network(grey: bool, size: int, cuda: bool) -> tuple[str, str]:
    if grey and size <= _SIZES["cpu"][0]:
        return "digits-cnn", "small and grey, like digits"
    if not cuda:
        return "quick-cnn", "without a GPU, others would take days"
    if size >= _PHOTO:
        return "resnext50", f"photos of {_PHOTO} pixels or more, and a GPU"
    return "cnn13", "the paper's network for small images, and a GPU"


def _validation(check: DataCheck) -> tuple[int, float, str]:
    """Labels left to train with, the share held out, and why."""
    labels, classes = sum(check.labeled.values()), len(check.labeled)
    if any(check.test.values()):
        return labels, 0.0, "there are test images"
    if labels < _LABELS_TO_SPARE * classes:
        return (
            labels,
            0.0,
            (
                f"{labels} labels for {classes} classes are too few to spare any (fewer than "
                f"{_LABELS_TO_SPARE} a class), so the model is not evaluated"
            ),
        )
    kept = sum(count - share_of_class(count, _VALIDATION) for count in check.labeled.values())
    return (
        kept,
        _VALIDATION,
        "there are no test images, so that share of the labels is held out to evaluate on",
    )


def _batch(labeled: int, unlabeled: int) -> tuple[dict[str, int], int]:
    """Composition of a batch, and steps of an epoch."""
    if not unlabeled:
        size = max(2, min(_LABELED + _UNLABELED, labeled))
        return {"size": size, "labeled": size}, max(1, labeled // size)
    rest, known = min(_UNLABELED, unlabeled), min(_LABELED, labeled)
    return {"size": known + rest, "labeled": known}, unlabeled // rest
