"""Source and target of a run that adapts: accuracy, lost classes, and pictures of both."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dualstudent.data.prepared import PreparedData
from dualstudent.errors import UserError, escape_line
from dualstudent.report.page.chart import COLORS
from dualstudent.training.adaptation import (
    LOOKED_AT,
    Seen,
    choose_drawn,
    choose_evenly,
    list_domains,
    look_at,
    read_features,
)
from dualstudent.training.run import Run
from dualstudent.training.trainer import Trainer

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
class Picture:
    """Samples of both domains in two dimensions.

    Attributes:
        title: of the picture.
        shows: what was projected, in a sentence.
        dots: the samples.
    """

    title: str
    shows: str
    dots: list[Dot]


@dataclass(frozen=True)
class Domains:
    """What the page shows about both domains.

    Attributes:
        looked_at: number of training samples of the source and of the target.
        source_accuracy: of the exported network on labeled training samples of the source, in %.
        labeled_targets: number of labeled training samples of the target that were looked at.
        target_accuracy: of the exported network on them, in %; None if there are none.
        lost: names of classes that it hardly ever predicts for the target.
        pictures: before and after the adaptation.
        colors: CSS class of a color → names of the classes that have it; empty for many classes.
    """

    looked_at: tuple[int, int]
    source_accuracy: float
    labeled_targets: int
    target_accuracy: float | None
    lost: tuple[str, ...]
    pictures: list[Picture]
    colors: dict[str, list[str]]


def compare_domains(trainer: Trainer, run: Run | None = None) -> Domains | None:
    """Compare the domains of a trained run by some of its training samples; None if it has one.

    Args:
        trainer: the trained run.
        run: its folder, which may keep features of the network before adaptation.

    Raises:
        UserError: if these are damaged.
    """
    data = trainer.data
    if data.is_target is None:
        return None
    domains = list_domains(data)
    source, target = (
        look_at(trainer, choose_evenly(rows, LOOKED_AT), of_source)
        for rows, of_source in zip(domains, (True, False), strict=True)
    )
    labeled = domains[1][data.labels[domains[1]] >= 0]
    known = look_at(trainer, choose_evenly(labeled, LOOKED_AT), False) if len(labeled) else None
    return Domains(
        (len(source.rows), len(target.rows)),
        _measure_accuracy(source, data),
        0 if known is None else len(known.rows),
        None if known is None else _measure_accuracy(known, data),
        _find_lost(target, data.classes),
        _draw_both(data, run, source.join(target)),
        _name_colors(data.classes),
    )


def _measure_accuracy(seen: Seen, data: PreparedData) -> float:
    return 100 * (seen.predicted == data.labels[seen.rows]).float().mean().item()


def _find_lost(target: Seen, classes: Sequence[str]) -> tuple[str, ...]:
    shares = target.predicted.bincount(minlength=len(classes)) / len(target.predicted)
    return tuple(
        escape_line(name)
        for name, share in zip(classes, shares.tolist(), strict=True)
        if share < _RARELY / len(classes)
    )


def _draw_both(data: PreparedData, run: Run | None, seen: Seen) -> list[Picture]:
    """Draw the same samples before and after, each with its label or its predicted class."""
    title, shows, rows, before = _find_before(data, run, seen.rows)
    after = seen.select(rows)
    labels = data.labels[rows]
    classes = torch.where(labels >= 0, labels, after.predicted)
    assert data.is_target is not None
    marks = data.is_target[rows], classes
    return [
        Picture(title, shows, _draw(before, *marks)),
        Picture(
            "After: the features of the network",
            "Features of the trained network.",
            _draw(after.features, *marks),
        ),
    ]


def _find_before(
    data: PreparedData, run: Run | None, seen: Tensor
) -> tuple[str, str, Tensor, Tensor]:
    """Title and content of the first picture, and the rows (n,) and vectors (n, D) that it shows.

    The network before adaptation exists in runs with stages only. An initial one has random
    weights, so that the samples themselves say more than its features.
    """
    if run is None or not run.features_before.is_file():
        rows = torch.cat(choose_drawn(data))
        rows = rows[torch.isin(rows, seen)]  # the others cannot be read
        (samples,) = data.train.make_views(rows, [None])
        shows = "The samples as the network gets them: no network from before was kept."
        return "Before: the samples", shows, rows, samples.flatten(1).cpu()
    rows, features = read_features(run.features_before)
    known = torch.isin(rows, seen)
    if int(known.sum()) < 2:
        raise UserError(f"{run.features_before}: belongs to another run; bring its own back")
    shows = "Features of the network that the last stage began with."
    return "Before: the features of the network", shows, rows[known], features[known]


def _name_colors(classes: Sequence[str]) -> dict[str, list[str]]:
    if len(classes) > _NAMED:
        return {}
    return {
        f"c{color}": [escape_line(name) for name in classes[color::COLORS]]
        for color in range(min(COLORS, len(classes)))
    }


def _draw(vectors: Tensor, of_target: Tensor, classes: Tensor) -> list[Dot]:
    """Draw vectors (n, D) of both domains along the two directions of their largest variance."""
    centered = vectors.double() - vectors.double().mean(dim=0)
    directions = torch.linalg.svd(centered, full_matrices=False).Vh[:2]
    places = centered @ directions.T
    low, high = places.amin(dim=0), places.amax(dim=0)
    shares = (places - low) / (high - low).clamp(min=torch.finfo(places.dtype).tiny)
    return [
        Dot(round(x, 3), round(y, 3), f"c{number % COLORS}", target)
        for (x, y), number, target in zip(
            shares.tolist(), classes.tolist(), of_target.tolist(), strict=True
        )
    ]
