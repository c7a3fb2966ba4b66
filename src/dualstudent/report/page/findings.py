"""Training images to look at: doubtful labels, copies, and images unlike all labeled ones."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from dualstudent.data.images.own import LabeledImages
from dualstudent.data.prepared import PreparedData
from dualstudent.errors import escape_line
from dualstudent.report.format import html_percent
from dualstudent.report.page.galleries import make_thumbnail, shorten_path
from dualstudent.training.inspection import Found, Inspection

_KINDS = (
    (
        "suspects",
        "Labels that may be wrong",
        "Three baselines that learned from the other labels are sure of another class.",
    ),
    (
        "lookalikes",
        "Images that may be copies",
        "Pairs whose features are nearly the same; if they are copies, keep one of each.",
    ),
    (
        "unlike",
        "Images unlike all labeled ones",
        "Their features are far from those of every labeled image; label some of them, or take "
        "them out if they are of no class.",
    ),
)


@dataclass(frozen=True)
class Shown:
    """One or two images with facts about them.

    Attributes:
        sources: each image as a data URI.
        facts: what it is → value.
        files: FOLDER/NAME of each file, for the user's own images.
    """

    sources: tuple[str, ...]
    facts: dict[str, str]
    files: tuple[str, ...]


@dataclass(frozen=True)
class FindingGallery:
    """Images that were found for the same reason.

    Attributes:
        title: heading.
        reason: a sentence on what they are.
        count: number of such images or pairs; the first are shown.
        shown: those that are shown.
    """

    title: str
    reason: str
    count: int
    shown: list[Shown]


def build_finding_galleries(
    inspection: Inspection | None, data: PreparedData, size: int
) -> list[FindingGallery]:
    """Draw the first of each kind.

    Args:
        inspection: what was found in ``data``; None if nobody looked.
        data: samples and names of the classes.
        size: largest number of thumbnails of a kind.
    """
    none = data.train.read_pixels(torch.arange(0))
    if inspection is None or none is None or none.shape[1] not in (1, 3):
        return []
    return [
        FindingGallery(
            title,
            reason,
            inspection.counts[kind],
            list(_show(getattr(inspection, kind), data, size)),
        )
        for kind, title, reason in _KINDS
        if inspection.counts[kind]
    ]


def _show(found: Sequence[Found], data: PreparedData, size: int) -> Iterator[Shown]:
    source = data.source
    paths = source.images.listing.paths if isinstance(source, LabeledImages) else None
    for each in found[:size]:
        pixels = data.train.read_pixels(torch.tensor(each.images))
        assert pixels is not None
        files = tuple(shorten_path(paths[index]) for index in each.images) if paths else ()
        yield Shown(tuple(map(make_thumbnail, pixels)), _list_facts(each, data), files)


def _list_facts(found: Found, data: PreparedData) -> dict[str, str]:
    labels = data.labels[list(found.images)].tolist()
    given = " / ".join("–" if each < 0 else escape_line(data.classes[each]) for each in labels)
    if found.answer is None:
        named = {} if max(labels) < 0 else {"label": given}
        return named | {"similarity": f"{found.value:.2f}"}
    answer = escape_line(data.classes[found.answer])
    return {"label": given, "looks like": answer, "confidence": html_percent(100 * found.value)}
