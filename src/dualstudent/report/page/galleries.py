"""Galleries of images: confident mistakes, disagreement between students, least stable."""

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

_SIDE = 96  # largest side of a thumbnail in pixels
_LOSSLESS_SIDE = 48  # small images are stored without loss; photos would take too much space

_MISTAKES = (
    "mistakes",
    "Most confident mistakes",
    "Wrong predictions of the highest confidence. Some of the labels may be wrong.",
)
_DISAGREED = (
    "disagreed",
    "The students disagree",
    "They predict different classes. Labels for images like these help most.",
)
_UNSTABLE = (
    "unstable",
    "Least stable",
    "A small change of the image changes the prediction the most.",
)


@dataclass(frozen=True)
class Picture:
    """One image and its predictions.

    Attributes:
        source: the image as a data URI.
        truth: name of its true class.
        predicted: name of the class that each headline network predicts.
        confidence: of the exported network, in [0, 1].
        correct: whether the exported network is correct.
        file: FOLDER/NAME of the file, for the user's own images.
    """

    source: str
    truth: str
    predicted: tuple[str, ...]
    confidence: float
    correct: bool
    file: str


@dataclass(frozen=True)
class Gallery:
    """Pictures that were chosen for the same reason.

    Attributes:
        key: identifies the gallery.
        title: heading.
        reason: a sentence on why they were chosen.
        count: number of such images; the first are shown.
        pictures: those that are shown.
    """

    key: str
    title: str
    reason: str
    count: int
    pictures: list[Picture]


def build_galleries(
    predictions: Predictions,
    predicted: PredictedSet,
    data: PreparedData,
    headline: Sequence[str],
    size: int,
) -> list[Gallery] | None:
    """The most confident mistakes, images on which students disagree, and the least stable.

    Args:
        predictions: for test samples of ``data``.
        predicted: the same with the true labels.
        data: samples and names of the classes.
        headline: names of the headline networks; with a single one there is no disagreement.
        size: largest number of pictures in a gallery.

    Returns:
        None if the samples are not images.
    """
    none = data.test.read_pixels(predictions.indices[:0])
    if none is None or none.shape[1] not in (1, 3):
        return None
    wanted = [
        (_MISTAKES, ~predicted.correct, predicted.confidence),
        (_DISAGREED, ~predicted.agree, predicted.confidence),
        (_UNSTABLE, ~predicted.stable, predictions.instability),
    ]
    found = []
    for (key, title, reason), among, order in wanted:
        rows = among.nonzero().squeeze(1)
        first = rows[order[rows].argsort(descending=True, stable=True)[:size]]
        pictures = _make_pictures(first, predictions, predicted, data)
        found.append(Gallery(key, title, reason, len(rows), pictures))
    return found if len(headline) > 1 else [each for each in found if each.key != "disagreed"]


def _make_pictures(
    rows: Tensor, predictions: Predictions, predicted: PredictedSet, data: PreparedData
) -> list[Picture]:
    indices = predictions.indices[rows]
    pixels = data.test.read_pixels(indices)
    assert pixels is not None
    classes = [escape_line(name) for name in data.classes]
    facts = (
        indices,
        predicted.labels[rows],
        predictions.labels[rows],
        predicted.confidence[rows],
        predicted.correct[rows],
    )
    return [
        Picture(
            make_thumbnail(image),
            classes[truth],
            tuple(classes[label] for label in labels),
            confidence,
            correct,
            shorten_path(data.test_files[index]) if data.test_files else "",
        )
        for image, index, truth, labels, confidence, correct in zip(
            pixels, *(fact.tolist() for fact in facts), strict=True
        )
    ]


def shorten_path(path: Path) -> str:
    """Return FOLDER/NAME: enough to find the file, without the user's other folders."""
    return escape_line("/".join(path.parts[-2:]))


def make_thumbnail(pixels: Tensor) -> str:
    """(1 or 3, H, W) uint8 pixels as a data URI of at most 96 × 96 pixels.

    Example:
        >>> import torch
        >>> make_thumbnail(torch.zeros(1, 8, 8, dtype=torch.uint8))[:23]
        'data:image/webp;base64,'
    """
    array = pixels[0] if len(pixels) == 1 else pixels.permute(1, 2, 0)
    image = Image.fromarray(array.contiguous().numpy())
    image.thumbnail((_SIDE, _SIDE))
    buffer = BytesIO()
    image.save(buffer, "WEBP", quality=90, lossless=max(image.size) <= _LOSSLESS_SIDE)
    return f"data:image/webp;base64,{b64encode(buffer.getvalue()).decode()}"
