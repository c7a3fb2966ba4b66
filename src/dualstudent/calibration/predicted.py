"""What was predicted of a labeled set, and what is true."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class PredictedSet:
    """The predictions of a network for N samples whose labels are known, C classes.

    Attributes:
        probabilities: (N, C), each row sums to 1.
        labels: (N,) int64 in [0, C), the truth.
        stable: (N,) bool, whether the sample is stable for the network (Eq. 3).
        agree: (N,) bool, whether all students of the run predict the same class.

    Raises:
        ValueError: if there are no samples, or the four do not fit together.
    """

    probabilities: Tensor
    labels: Tensor
    stable: Tensor
    agree: Tensor

    def __post_init__(self) -> None:
        samples, classes = self.probabilities.shape
        for name in ("labels", "stable", "agree"):
            if getattr(self, name).shape != (samples,):
                raise ValueError(f"{name}: one for each of the {samples} samples is needed")
        if samples == 0:
            raise ValueError("a set without samples tells nothing")
        if int(self.labels.min()) < 0 or int(self.labels.max()) >= classes:
            raise ValueError(f"labels: all must be known, from 0 to {classes - 1}")

    @property
    def predicted(self) -> Tensor:
        """(N,) int64, the most probable class."""
        return self.probabilities.argmax(dim=1)

    @property
    def confidence(self) -> Tensor:
        """(N,) float64, its probability."""
        return self.probabilities.double().amax(dim=1)

    @property
    def correct(self) -> Tensor:
        """(N,) bool, whether it is the truth."""
        return self.predicted == self.labels
