"""Pictures worth a look: where a network errs, where students differ, what shakes an answer."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from PIL import Image
from torch import Tensor

from dualstudent.calibration import PredictedSet
from dualstudent.data.prepared import PreparedData
from dualstudent.errors import escape_line
from dualstudent.training.inference import Predictions

_SIDE = 96  # pixels of a thumbnail, at most
_EXACT_UP_TO = 48  # pixels; of small images every one counts, photos would take too much space

_MISTAKES = (
    "mistakes",
    "Surest mistakes",
    "Wrong, and most confident of it. Some may be wrong labels.",
)
_DISAGREED = (
    "disagreed",
    "The students disagree",
    "They say different classes. A label from a person helps here.",
)
_SHAKEN = ("shaken", "Least stable", "A small change of the image moves the answer the most.")


@dataclass(frozen=True)
class Picture:
    """One image, and what was said of it.

    Attributes:
        source: the image itself, as a data URI.
        truth: the name of its class.
        answers: the name of the class that each network of the headline says.
        confidence: of the exported network in its answer, in [0, 1].
        right: whether that answer is the truth.
        file: its name and that of its folder, if it is one's own.
    """

    source: str
    truth: str
    answers: tuple[str, ...]
    confidence: float
    right: bool
    file: str


@dataclass(frozen=True)
class Gallery:
    """Some pictures for the same reason.

    Attributes:
        key: what it is about, in a word.
        title: above them.
        reason: why these, in a sentence.
        count: how many there are; some of them are shown.
        pictures: the first of them.
    """

    key: str
    title: str
    reason: str
    count: int
    pictures: list[Picture]


def galleries(
    answers: Predictions,
    predicted: PredictedSet,
    data: PreparedData,
    headline: Sequence[str],
    size: int,
) -> list[Gallery] | None:
    """The surest mistakes, the images on which students disagree, the least stable ones.

    Args:
        answers: to the test samples of ``data``.
        predicted: the same, beside the truth.
        data: samples and names of the classes.
        headline: the names of the networks; of one alone nobody disagrees.
        size: how many pictures each shows, at most.

    Returns:
        None if the samples are no images.
    """
    if data.test.read_pixels(answers.indices[:0]) is None or data.test.shape[0] not in (1, 3):
        return None

    wanted = [
        (_MISTAKES, ~predicted.correct, predicted.confidence),
        (_DISAGREED, ~predicted.agree, predicted.confidence),
        (_SHAKEN, ~predicted.stable, answers.instability),
    ]
    found = []
    for (key, title, reason), among, order in wanted:
        rows = among.nonzero().squeeze(1)
        first = rows[order[rows].argsort(descending=True, stable=True)[:size]]
        pictures = _pictures(first, answers, predicted, data)
        found.append(Gallery(key, title, reason, len(rows), pictures))
    return found if len(headline) > 1 else [each for each in found if each.key != "disagreed"]


def _pictures(
    rows: Tensor, answers: Predictions, predicted: PredictedSet, data: PreparedData
) -> list[Picture]:
    indices = answers.indices[rows]
    pixels = data.test.read_pixels(indices)
    assert pixels is not None
    classes = [escape_line(name) for name in data.classes]
    facts = (
        indices,
        predicted.labels[rows],
        answers.labels[rows],
        predicted.confidence[rows],
        predicted.correct[rows],
    )
    return [
        Picture(
            thumbnail(image),
            classes[truth],
            tuple(classes[label] for label in labels),
            confidence,
            right,
            _short(data.test_files[index]) if data.test_files else "",
        )
        for image, index, truth, labels, confidence, right in zip(
            pixels, *(fact.tolist() for fact in facts), strict=True
        )
    ]


def _short(path: Path) -> str:
    """The file and the folder it is in: enough to find it, and nothing about the machine."""
    return escape_line("/".join(path.parts[-2:]))


def thumbnail(pixels: Tensor) -> str:
    """(1 or 3, H, W) uint8 → a data URI, at most 96 pixels a side.

    Example:
        >>> import torch
        >>> thumbnail(torch.zeros(1, 8, 8, dtype=torch.uint8))[:23]
        'data:image/webp;base64,'
    """
    array = pixels[0] if len(pixels) == 1 else pixels.permute(1, 2, 0)
    image = Image.fromarray(array.contiguous().numpy())
    image.thumbnail((_SIDE, _SIDE))
    buffer = BytesIO()
    image.save(buffer, "WEBP", quality=90, lossless=max(image.size) <= _EXACT_UP_TO)
    return f"data:image/webp;base64,{b64encode(buffer.getvalue()).decode()}"
