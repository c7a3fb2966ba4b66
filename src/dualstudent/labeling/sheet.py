"""The sheet of unlabeled images: a CSV file, the images most worth a label first."""

import csv
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from dualstudent.atomic import create_text_file
from dualstudent.data.images.decoding import UnreadableImage
from dualstudent.data.images.own import LabeledImages
from dualstudent.data.images.tables import escape_cell
from dualstudent.errors import UserError, escape_line
from dualstudent.labeling.names import ImageNames, name_own_images, name_published_images
from dualstudent.labeling.ranking import rank_for_labeling
from dualstudent.labeling.trust import TrustRule
from dualstudent.parallel import Progress
from dualstudent.signals import Interrupted, StopRequest
from dualstudent.training.inference import predict
from dualstudent.training.model import load_trained
from dualstudent.training.run import Run
from dualstudent.training.trainer import Trainer

COLUMNS = (
    *("rank", "path", "label", "predicted", "trust"),
    *("stable", "agree", "trusted", "part", "domain"),
)


@dataclass(frozen=True)
class LabelSheet:
    """What was written.

    Attributes:
        unlabeled: number of ranked images.
        trusted: number of them whose prediction is good enough to be used as a label.
        labeled: number of rows for images that already had a label.
        trust_rule: decided which predictions are trusted.
        unreadable: own images without a row.
        broken: number of images of a published data set that could not be read.
        copies: number of unlabeled copies of held-out images, which were left out of training.
    """

    unlabeled: int
    trusted: int
    labeled: int
    trust_rule: TrustRule
    unreadable: tuple[UnreadableImage, ...]
    broken: int
    copies: int

    def describe(self, output: Path) -> list[str]:
        """Lines for the user: what is in the sheet at ``output``, and what to do with it."""
        skipped = len(self.unreadable) + self.broken
        written = f"{self.unlabeled:,} unlabeled images in {escape_line(output)}, "
        trusted = f"the predictions of {self.trusted:,} trusted"
        lines = [
            written + trusted + (f"; {skipped:,} skipped" if skipped else ""),
            *self.trust_rule.describe(),
        ]
        if self.copies:
            lines.append(f"left out: {self.copies:,} unlabeled copies of validation images")
        if self.labeled:
            command = f"dualstudent train --data {shlex.quote(str(output))} --out NEW-RUN"
            lines.append(
                "next: fill in the label of as many of the first rows as you like, then run "
                + escape_line(command)
            )
        else:
            lines.append(
                "these are numbers of images in a published data set, to see the order; to label "
                "images of your own, train with --data FOLDER"
            )
        return lines


@dataclass(frozen=True)
class UnlabeledPredictions:
    """Predictions for n unlabeled samples; each attribute is (n,).

    Attributes:
        indices: int64, which training samples.
        predicted: int64, the predicted class.
        doubt: in [0, 1], 1 − its probability, not calibrated; decides the order of the sheet.
        trust: in [0, 1], its calibrated probability.
        stable: bool, whether the sample is stable for all students.
        agree: bool, whether all students predict the same class.
        trusted: bool, whether the prediction is good enough to be used as a label.
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
    """Write the unlabeled images of a run to a CSV file, those most worth a label first.

    Columns: ``rank`` from 1; ``path``; ``label``, to be filled in; ``predicted`` class; ``trust``,
    its calibrated probability; ``stable`` for all students; whether they ``agree``; ``trusted``,
    good enough to be used as a label; ``part``; of two domains of own images, ``domain``. The
    user's own labeled images follow, so that the file is a data set to train on.

    Args:
        run: a finished one, on own images or a published data set.
        output: the file to write; must not exist.
        precision: wanted share of correct predictions among the trusted ones, in (0, 1].
        progress: is told how many images are done.

    Raises:
        UserError: if run, data or output are wrong, or all images have labels.
        Interrupted: after Ctrl-C, SIGTERM or SIGHUP. In all these cases no file is written.
    """
    if not 0 < precision <= 1:
        raise UserError(f"precision = {precision}: use a number above 0, at most 1")
    with create_text_file(Path(output)) as file, StopRequest() as stop:
        trainer, names = _open(run)
        rule = TrustRule.fit(trainer, precision)
        found = _predict_unlabeled(trainer, rule, progress, stop)
        order = rank_for_labeling(trainer, found.indices, found.doubt)
        _check_stop(stop, len(order))
        sheet = csv.writer(file)
        width = len(COLUMNS) - (names.get_domain is None)  # the last column is the domain
        sheet.writerow(COLUMNS[:width])
        for row in _make_rows(found, order, names, trainer):
            sheet.writerow(row[:width])
        for known in names.labeled:
            cells = [escape_cell(known.path), escape_cell(known.label), *[""] * 5]
            sheet.writerow(["", *cells, known.part, known.domain][:width])
    total = len(trainer.data.unlabeled)
    return LabelSheet(
        len(order),
        int(found.trusted.sum()),
        len(names.labeled),
        rule,
        names.unreadable,
        broken=total - len(order),
        copies=0 if names.unlabeled is None else names.unlabeled - total,
    )


def _open(run: Run) -> tuple[Trainer, ImageNames]:
    settings = run.read_recipe().data
    if settings.path is None and settings.source is None:
        raise UserError(
            f"{run.folder}: was trained on arrays from Python, whose samples have no names; "
            "train with --data, or by a recipe with data.source"
        )
    if settings.path is not None and settings.labels != "all":
        raise UserError(
            f"{run.folder}: data.labels = {settings.labels} hid some of your labels, so it would "
            "ask for labels that you have; train with all of them"
        )
    trainer = load_trained(run.used)  # not the deployed one, which has learned what measures trust
    if bool((trainer.data.labels[trainer.data.unlabeled] >= 0).all()):
        raise UserError(f"{run.folder}: every image has a label; there is nothing left to label")
    source = trainer.data.source
    if isinstance(source, LabeledImages):
        return trainer, name_own_images(source.images)
    return trainer, name_published_images(settings, trainer.data)


def _predict_unlabeled(
    trainer: Trainer, rule: TrustRule, progress: Progress | None, stop: StopRequest
) -> UnlabeledPredictions:
    """Predict all unlabeled images; the probabilities of the other classes are not kept."""
    data, seed, device = trainer.data, trainer.recipe.seed, trainer.fabric.device
    pieces, done = [], 0
    if progress is not None:
        progress.on_start(0, len(data.unlabeled))
    for chunk in predict(trainer.method, data.train, data.unlabeled, seed, device):
        probability, predicted = chunk.probabilities.max(dim=1)
        flags = (chunk.stable_for_all, chunk.agree, rule.is_trusted(chunk))
        trust = rule.compute_trust(chunk)
        pieces.append((chunk.indices, predicted, 1 - probability, trust, *flags))
        done += len(predicted)
        if progress is not None:
            progress.on_step(done)
        _check_stop(stop, done)
    return UnlabeledPredictions(*(torch.cat(column) for column in zip(*pieces, strict=True)))


def _check_stop(stop: StopRequest, done: int) -> None:
    if stop.received:
        raise Interrupted(stop.received, f"{done:,} images", "the same command")


def _make_rows(
    found: UnlabeledPredictions, order: Tensor, names: ImageNames, trainer: Trainer
) -> Iterator[list[str]]:
    classes, has_one_network = trainer.data.classes, len(trainer.method.headline) == 1
    columns = (found.indices, found.predicted, found.trust)
    flags = (found.stable, found.agree, found.trusted)
    values = zip(*(column[order].tolist() for column in (*columns, *flags)), strict=True)
    for rank, (index, label, trust, *truths) in enumerate(values, start=1):
        stable, agree, trusted = (str(truth).lower() for truth in truths)
        agree = "" if has_one_network else agree
        prediction = [escape_cell(classes[label]), f"{trust:.6f}", stable, agree, trusted]
        domain = names.get_domain(index) if names.get_domain else ""
        yield [str(rank), escape_cell(names.get(index)), "", *prediction, "train", domain]
