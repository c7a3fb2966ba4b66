"""Which classes are taken for which."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from dualstudent.calibration.predicted import PredictedSet


@dataclass(frozen=True)
class ClassFigures:
    """Of one class; shares in [0, 1].

    Attributes:
        name: of the class.
        count: how many samples are truly of it.
        precision: the share of right ones among those predicted to be of it; None if none is.
        recall: the share of right ones among those truly of it; None if there are none.
    """

    name: str
    count: int
    precision: float | None
    recall: float | None


def confusion_matrix(predicted: PredictedSet) -> Tensor:
    """(C, C) int64: row = the truth, column = the prediction, value = how many samples.

    Example:
        >>> import torch
        >>> p, yes = torch.tensor([[0.9, 0.1], [0.7, 0.3]]), torch.tensor([True, True])
        >>> confusion_matrix(PredictedSet(p, torch.tensor([0, 1]), yes, yes)).tolist()
        [[1, 0], [1, 0]]
    """
    classes = predicted.probabilities.shape[1]
    cell = predicted.labels * classes + predicted.predicted
    return cell.bincount(minlength=classes**2).reshape(classes, classes)


def class_figures(matrix: Tensor, classes: Sequence[str]) -> list[ClassFigures]:
    """Precision and recall of every class.

    Args:
        matrix: of :func:`confusion_matrix`.
        classes: their C names.
    """
    columns = (matrix.diagonal(), matrix.sum(dim=1), matrix.sum(dim=0))
    figures = zip(classes, *(column.tolist() for column in columns), strict=True)
    return [
        ClassFigures(
            name,
            true,
            precision=right / said if said else None,
            recall=right / true if true else None,
        )
        for name, right, true, said in figures
    ]
