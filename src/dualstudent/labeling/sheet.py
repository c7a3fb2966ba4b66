"""A sheet of the unlabeled images of a run: most worth a person's time first."""

import csv
import math
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from dualstudent.atomic import create_text_file
from dualstudent.data.images.decoding import UnreadableImage
from dualstudent.data.images.own import LabeledImages
from dualstudent.errors import UserError, escape_line
from dualstudent.labeling.features import extract_features
from dualstudent.labeling.images import ImageNames, own_names, published_names
from dualstudent.labeling.order import CONSIDERED, labeling_order
from dualstudent.labeling.yardstick import Yardstick
from dualstudent.parallel import Progress
from dualstudent.signals import Interrupted, StopRequest
from dualstudent.training.inference import predict
from dualstudent.training.model import load_trained
from dualstudent.training.run import Run
from dualstudent.training.trainer import Trainer

COLUMNS = (
    *("rank", "path", "label", "predicted", "trust"),
    *("stable", "agree", "trusted", "part"),
)


@dataclass(frozen=True)
class LabelSheet:
    """What was written.

    Attributes:
        unlabeled: how many images have a rank.
        trusted: of how many of them the prediction is as good as a label.
        known: how many follow, whose label was known; then the sheet is a whole data set.
        yardstick: by which trust was measured.
        unreadable: own images without a row.
        broken: how many images of a published data set could not be read.
        copies: of images that were held out; they took no part in the run.
    """

    unlabeled: int
    trusted: int
    known: int
    yardstick: Yardstick
    unreadable: tuple[UnreadableImage, ...]
    broken: int
    copies: int

    def in_words(self, output: Path) -> list[str]:
        """What is in the sheet, and what to do with it, a line each."""
        skipped = len(self.unreadable) + self.broken
        written = f"{self.unlabeled:,} unlabeled images in {escape_line(output)}, "
        trusted = f"the predictions of {self.trusted:,} trusted"
        lines = [
            written + trusted + (f"; {skipped:,} skipped" if skipped else ""),
            *self.yardstick.in_words(),
        ]
        if self.copies:
            lines.append(f"left out: {self.copies:,} unlabeled copies of images that validate")
        if self.known:
            command = f"dualstudent train --data {shlex.quote(str(output))} --out NEW-RUN"
            lines.append(
                "to go on: fill in the label of the first rows, as many as you like, then "
                + escape_line(command)
            )
        return lines


@dataclass(frozen=True)
class Opinions:
    """Of n unlabeled samples, (n,) each: where they are, what is said of them, how far to trust.

    ``doubt`` is what the network itself leaves open: held-out images decide what can be trusted,
    but not what a person is asked.
    """

    indices: Tensor
    predicted: Tensor
    doubt: Tensor
    trust: Tensor
    stable: Tensor
    agree: Tensor
    trusted: Tensor


def write_labels(
    run: Run, output: Path | str, precision: float = 0.95, progress: Progress | None = None
) -> LabelSheet:
    """List the unlabeled images of a run in a CSV file, most worth a person's time first.

    The columns: ``rank`` from 1 on, ``path``, ``label`` to be filled in, ``predicted`` (the class
    that the network says), ``trust`` in it, ``stable`` for all students, whether these ``agree``,
    ``trusted`` (good enough as a label) and ``part``. Own images that have a label follow, so
    that the sheet is a data set to train with.

    Args:
        run: a finished one, on own images or a published data set.
        output: must not exist; appears when all is done.
        precision: share of right ones that is wanted among the trusted, in (0, 1].
        progress: is told how many images are done.

    Raises:
        UserError: if run, data or output are wrong, or all is labeled; then nothing is written.
        Interrupted: after Ctrl-C, SIGTERM or SIGHUP; then neither.
    """
    if not 0 < precision <= 1:
        raise UserError(f"precision = {precision}: use a share above 0, at most 1")
    with create_text_file(Path(output)) as file, StopRequest() as stop:
        trainer, names = _open(run)
        yardstick = Yardstick.measured(trainer, precision)
        found = _asked(trainer, yardstick, progress, stop)
        order = rank_for_labeling(trainer, found.indices, found.doubt)
        _obey(stop, len(order))
        sheet = csv.writer(file)
        sheet.writerow(COLUMNS)
        sheet.writerows(_rows(found, order, names, trainer))
        sheet.writerows(
            ["", image.path, image.label, "", "", "", "", "", image.part] for image in names.known
        )
    asked = len(trainer.data.unlabeled)
    return LabelSheet(
        len(order),
        int(found.trusted.sum()),
        len(names.known),
        yardstick,
        names.unreadable,
        broken=asked - len(order),
        copies=0 if names.unlabeled is None else names.unlabeled - asked,
    )


def _open(run: Run) -> tuple[Trainer, ImageNames]:
    settings = run.read_recipe().data
    if settings.path is None and settings.source is None:
        raise UserError(
            f"{run.folder}: was trained on data handed over from Python, whose samples have no "
            "names to list; train with --data, or by a recipe with a data.source"
        )
    trainer = load_trained(run)
    if trainer.data.everything_labeled:
        raise UserError(f"{run.folder}: every image has a label; there is nothing left to label")
    source = trainer.data.source
    if isinstance(source, LabeledImages):
        return trainer, own_names(source.images)
    return trainer, published_names(settings, trainer.data)


def _asked(
    trainer: Trainer, yardstick: Yardstick, progress: Progress | None, stop: StopRequest
) -> Opinions:
    """What the networks say of all unlabeled images; of the probabilities only trust is kept."""
    data, seed, device = trainer.data, trainer.recipe.seed, trainer.fabric.device
    pieces, done = [], 0
    if progress is not None:
        progress.on_start(0, len(data.unlabeled))
    for said in predict(trainer.method, data.train, data.unlabeled, seed, device):
        probability, predicted = said.probabilities.max(dim=1)
        flags = (said.stable_for_all, said.agree, yardstick.trusted(said))
        pieces.append((said.indices, predicted, 1 - probability, yardstick.trust(said), *flags))
        done += len(predicted)
        if progress is not None:
            progress.on_step(done)
        _obey(stop, done)
    return Opinions(*(torch.cat(column) for column in zip(*pieces, strict=True)))


def rank_for_labeling(trainer: Trainer, indices: Tensor, doubt: Tensor) -> Tensor:
    """All of some unlabeled samples, those most worth a label first.

    Args:
        trainer: of the run.
        indices: (n,) int64, where the samples are.
        doubt: (n,) in [0, 1], how probable it is that what the run says of them is wrong.

    Returns:
        (n,) int64, places in ``indices``.
    """
    by_doubt = doubt.argsort(descending=True, stable=True)
    considered, labeled = by_doubt[:CONSIDERED], trainer.data.labeled
    every = math.ceil(len(labeled) / CONSIDERED)
    first = considered[
        labeling_order(
            doubt[considered],
            extract_features(trainer, indices[considered]),
            extract_features(trainer, labeled[::every]),
        )
    ]
    return torch.cat([first, by_doubt[~torch.isin(by_doubt, first)]])


def _obey(stop: StopRequest, done: int) -> None:
    if stop.received:
        raise Interrupted(stop.received, f"{done:,} images", "the same command")


def _rows(
    found: Opinions, order: Tensor, names: ImageNames, trainer: Trainer
) -> Iterator[list[str]]:
    classes, alone = trainer.data.classes, len(trainer.method.headline) == 1
    columns = (found.indices, found.predicted, found.trust)
    flags = (found.stable, found.agree, found.trusted)
    values = zip(*(column[order].tolist() for column in (*columns, *flags)), strict=True)
    for rank, (index, label, trust, *truths) in enumerate(values, start=1):
        stable, agree, trusted = (str(truth).lower() for truth in truths)
        agree = "" if alone else agree  # there is nobody to agree with
        said = [classes[label], f"{trust:.6f}", stable, agree, trusted]
        yield [str(rank), names.of(index), "", *said, "train"]
