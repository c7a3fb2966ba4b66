"""Predictions for samples whose labels are known."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class PredictedSet:
    """The predictions of a network for N ≥ 1 labeled samples, C classes.

    Attributes:
        probabilities: (N, C), each row sums to 1.
        labels: (N,) int64 in [0, C), the true classes.
        stable: (N,) bool, whether each sample is stable for the network (Eq. 3).
        agree: (N,) bool, whether all students of the run predict the same class.

    Raises:
        ValueError: if there are no samples, shapes differ, or a label is out of range.
    """

    probabilities: Tensor
    labels: Tensor
    stable: Tensor
    agree: Tensor

    def __post_init__(self) -> None:
        samples, classes = self.probabilities.shape
        for name in ("labels", "stable", "agree"):
            shape = tuple(getattr(self, name).shape)
            if shape != (samples,):
                raise ValueError(f"{name}: shape {shape}, expected ({samples},)")
        if samples == 0:
            raise ValueError("probabilities: there must be at least one sample")
        if int(self.labels.min()) < 0 or int(self.labels.max()) >= classes:
            raise ValueError(f"labels: all must be from 0 to {classes - 1}")

    @property
    def predicted(self) -> Tensor:
        """(N,) int64, the most probable class."""
        return self.probabilities.argmax(dim=1)

    @property
    def confidence(self) -> Tensor:
        """(N,) float64, the probability of the predicted class."""
        return self.probabilities.double().amax(dim=1)

    @property
    def correct(self) -> Tensor:
        """(N,) bool, whether the predicted class is the true one."""
        return self.predicted == self.labels


def confusion_matrix(predicted: PredictedSet) -> Tensor:
    """(C, C) int64, number of samples by true class (row) and predicted class (column).

    Example:
        >>> import torch
        >>> p, yes = torch.tensor([[0.9, 0.1], [0.7, 0.3]]), torch.tensor([True, True])
        >>> confusion_matrix(PredictedSet(p, torch.tensor([0, 1]), yes, yes)).tolist()
        [[1, 0], [1, 0]]
    """
    classes = predicted.probabilities.shape[1]
    cell = predicted.labels * classes + predicted.predicted
    return cell.bincount(minlength=classes**2).reshape(classes, classes)
