"""Source and target of a run that adapts: accuracy, lost classes, and pictures of both."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dualstudent.errors import escape_line
from dualstudent.prediction import Prediction
from dualstudent.report.page.chart import COLORS
from dualstudent.training.inference import run_inference
from dualstudent.training.trainer import Trainer

_LOOKED_AT = 1000  # training samples of each domain
_DRAWN = 250  # of these
_NAMED = 3 * COLORS  # classes at most; more names would tell nothing
_RARELY = 0.1  # a class is lost if it is predicted so often, relative to equal shares


@dataclass(frozen=True)
class Dot:
    """A sample in a picture.

    Attributes:
        x: from 0 to 1.
        y: from 0 to 1.
        style: CSS class of its color, by class.
        of_target: whether it is of the target.
    """

    x: float
    y: float
    style: str
    of_target: bool


@dataclass(frozen=True)
class Domains:
    """What the page shows about both domains.

    Attributes:
        looked_at: number of training samples of the source and of the target.
        source_accuracy: of the exported network on labeled training samples of the source, in %.
        lost: names of classes that it hardly ever predicts for the target.
        pictures: title → the samples in two dimensions.
        colors: CSS class of a color → names of the classes that have it; empty for many classes.
    """

    looked_at: tuple[int, int]
    source_accuracy: float
    lost: tuple[str, ...]
    pictures: dict[str, list[Dot]]
    colors: dict[str, list[str]]


def compare_domains(trainer: Trainer) -> Domains | None:
    """Compare the domains of a trained run by some of its training samples; None if it has one."""
    data, method = trainer.data, trainer.method
    if data.is_target is None:
        return None
    network = method.evaluated[method.exported]
    marked = trainer.recipe.network.batch_norm == "by-domain"
    labeled = data.labeled[~data.is_target[data.labeled]]
    unlabeled = data.unlabeled[data.is_target[data.unlabeled]]
    chosen = [_choose_some(labeled, _LOOKED_AT), _choose_some(unlabeled, _LOOKED_AT)]
    found = [_infer(network, trainer, chosen[0], marked), _infer(network, trainer, chosen[1])]
    truth = data.labels[chosen[0]]
    guessed = found[1].class_logits.argmax(dim=1).cpu()
    shares = guessed.bincount(minlength=len(data.classes)) / len(guessed)
    right = found[0].class_logits.argmax(dim=1).cpu() == truth
    drawn = [_choose_some(torch.arange(len(rows)), _DRAWN) for rows in chosen]
    classes = torch.cat([truth[drawn[0]], guessed[drawn[1]]])
    as_given = [
        data.train.make_views(rows[some], [None])[0].flatten(1).cpu()
        for rows, some in zip(chosen, drawn, strict=True)
    ]
    as_seen = [each.features[some].cpu() for each, some in zip(found, drawn, strict=True)]
    return Domains(
        (len(chosen[0]), len(chosen[1])),
        100 * right.float().mean().item(),
        tuple(
            escape_line(name)
            for name, share in zip(data.classes, shares.tolist(), strict=True)
            if share < _RARELY / len(data.classes)
        ),
        {
            "Before: the samples": _draw(as_given, classes),
            "After: the features of the network": _draw(as_seen, classes),
        },
        _name_colors(data.classes),
    )


def _name_colors(classes: Sequence[str]) -> dict[str, list[str]]:
    if len(classes) > _NAMED:
        return {}
    return {
        f"c{color}": [escape_line(name) for name in classes[color::COLORS]]
        for color in range(min(COLORS, len(classes)))
    }


def _choose_some(indices: Tensor, most: int) -> Tensor:
    """At most ``most`` of them, evenly spaced."""
    places = torch.linspace(0, len(indices) - 1, min(most, len(indices)))
    return indices[places.long()]


def _infer(
    network: nn.Module, trainer: Trainer, rows: Tensor, of_source: bool = False
) -> Prediction:
    samples, device = trainer.data.train, trainer.fabric.device
    outputs = run_inference({"network": network}, samples, rows, None, device, of_source)
    parts = [each.clean["network"] for each in outputs]
    return Prediction(*(torch.cat(pieces) for pieces in zip(*parts, strict=True)))


def _draw(domains: Sequence[Tensor], classes: Tensor) -> list[Dot]:
    """Draw the vectors (n, D) of both domains along the two directions of the largest variance."""
    together = torch.cat(list(domains)).double()
    centered = together - together.mean(dim=0)
    directions = torch.linalg.svd(centered, full_matrices=False).Vh[:2]
    places = centered @ directions.T
    low, high = places.amin(dim=0), places.amax(dim=0)
    shares = (places - low) / (high - low).clamp(min=torch.finfo(places.dtype).tiny)
    of_target = torch.arange(len(together)) >= len(domains[0])
    return [
        Dot(round(x, 3), round(y, 3), f"c{number % COLORS}", target)
        for (x, y), number, target in zip(
            shares.tolist(), classes.tolist(), of_target.tolist(), strict=True
        )
    ]
