"""The confusion matrix of a run, and its most frequent mistakes."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO

import numpy as np
from PIL import Image
from torch import Tensor

from dualstudent.report.page.run_data import RunData

_MAX_CELLS = 20  # classes; more are shown as a picture
_PAIRS, _PAIRS_OF_MANY = 5, 15
_CORRECT, _WRONG = (0, 114, 178), (213, 94, 0)  # RGB, as in the style sheet


@dataclass(frozen=True)
class Cell:
    """Number of samples of a true class (row) with a prediction (column), and share of the row."""

    count: int
    share: float


@dataclass(frozen=True)
class Pair:
    """A mistake: ``count`` of the ``total`` samples of class ``truth`` are predicted as another."""

    truth: str
    predicted: str
    count: int
    total: int

    @property
    def share(self) -> float:
        return self.count / self.total


@dataclass(frozen=True)
class Confusion:
    """The confusion matrix of a run, as numbers or, for many classes, as a picture.

    Attributes:
        run: its name.
        network: name of the network that predicts.
        classes: of rows and columns.
        cells: by true class (row) and predicted class (column); None for many classes.
        heat_map: picture of the cells as a data URI; None for few classes.
        pairs: the most frequent mistakes, by count.
    """

    run: str
    network: str
    classes: Sequence[str]
    cells: list[list[Cell]] | None
    heat_map: str | None
    pairs: list[Pair]


def build_confusion(run: RunData) -> Confusion:
    """The confusion of a run that was evaluated."""
    assert run.evaluation is not None
    matrix, small = run.evaluation.matrix, len(run.classes) <= _MAX_CELLS
    return Confusion(
        run.name,
        run.evaluation.network,
        run.classes,
        _make_cells(matrix) if small else None,
        None if small else draw_heat_map(matrix),
        _find_mistakes(matrix, run.classes, _PAIRS if small else _PAIRS_OF_MANY),
    )


def _make_cells(matrix: Tensor) -> list[list[Cell]]:
    totals = matrix.sum(dim=1).tolist()
    return [
        [Cell(count, count / total if total else 0.0) for count in row]
        for row, total in zip(matrix.tolist(), totals, strict=True)
    ]


def _find_mistakes(matrix: Tensor, classes: Sequence[str], most: int) -> list[Pair]:
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


def draw_heat_map(matrix: Tensor) -> str:
    """The matrix as a PNG data URI, one pixel per cell, transparent where the count is 0.

    Opacity is the square root of the share, so that rare mistakes can be seen.
    """
    counts = matrix.double().numpy()
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    pixels = np.empty((*shares.shape, 4), np.uint8)
    pixels[..., :3] = _WRONG
    np.einsum("iic->ic", pixels)[:, :3] = _CORRECT
    pixels[..., 3] = np.rint(255 * np.sqrt(shares))
    buffer = BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return f"data:image/png;base64,{b64encode(buffer.getvalue()).decode()}"
