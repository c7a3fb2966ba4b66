"""Which classes are taken for which."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO

import numpy as np
from PIL import Image
from torch import Tensor

from dualstudent.report.page.evidence import Evidence

_CELLS_UP_TO = 20  # classes; more are a picture
_PAIRS, _PAIRS_OF_MANY = 5, 15
_RIGHT, _WRONG = (0, 114, 178), (213, 94, 0)  # as in the cells of a table


@dataclass(frozen=True)
class Cell:
    """How many samples of a row are said to be of a column, and which share of the row."""

    count: int
    share: float


@dataclass(frozen=True)
class Pair:
    """A class that is taken for another: how often, of how many."""

    truth: str
    answer: str
    count: int
    total: int

    @property
    def share(self) -> float:
        return self.count / self.total


@dataclass(frozen=True)
class Confusion:
    """The matrix of a run, to read or, with many classes, to look at.

    Attributes:
        run: its name.
        network: whose answers they are.
        classes: of rows and columns.
        cells: row = the truth, column = the answer; None for many classes.
        heat_map: a picture of the cells, as a data URI; None for few classes.
        pairs: the most frequent mistakes, by count.
    """

    run: str
    network: str
    classes: Sequence[str]
    cells: list[list[Cell]] | None
    heat_map: str | None
    pairs: list[Pair]


def confusion(run: Evidence) -> Confusion:
    """Of a run that was evaluated."""
    assert run.verdict is not None
    matrix, small = run.verdict.matrix, len(run.classes) <= _CELLS_UP_TO
    return Confusion(
        run.name,
        run.verdict.network,
        run.classes,
        _cells(matrix) if small else None,
        None if small else heat_map(matrix),
        _pairs(matrix, run.classes, _PAIRS if small else _PAIRS_OF_MANY),
    )


def _cells(matrix: Tensor) -> list[list[Cell]]:
    totals = matrix.sum(dim=1).tolist()
    return [
        [Cell(count, count / total if total else 0.0) for count in row]
        for row, total in zip(matrix.tolist(), totals, strict=True)
    ]


def _pairs(matrix: Tensor, classes: Sequence[str], most: int) -> list[Pair]:
    totals = matrix.sum(dim=1).tolist()
    mistakes = matrix.clone()
    mistakes.fill_diagonal_(0)
    order = mistakes.flatten().argsort(descending=True, stable=True)[:most].tolist()
    places = (divmod(cell, len(classes)) for cell in order)
    return [
        Pair(classes[row], classes[column], count, totals[row])
        for row, column in places
        if (count := int(mistakes[row, column]))
    ]


def heat_map(matrix: Tensor) -> str:
    """A pixel a cell, clear where there is nothing, so that it suits light and dark pages.

    Mistakes are stretched by a square root: a hundredth of a class must still be seen.
    """
    counts = matrix.double().numpy()
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    pixels = np.empty((*shares.shape, 4), np.uint8)
    pixels[..., :3] = _WRONG
    np.einsum("iic->ic", pixels)[:, :3] = _RIGHT
    pixels[..., 3] = np.rint(255 * np.sqrt(shares))
    buffer = BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return f"data:image/png;base64,{b64encode(buffer.getvalue()).decode()}"
