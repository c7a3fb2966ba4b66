"""Test samples of two classes that were tracked during training.

f₁ and f₂ are the students of Dual Student, fₛ is the student of Mean Teacher that began in the
same state as f₁. With two classes a sample is misclassified if the probability of its true class
is below ½.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualstudent.experiments.figures.series import read_evaluated
from dualstudent.training.run import Run

MODELS = ("f₁", "f₂", "fₛ")
_NETWORKS = (("f₁", "student1"), ("f₂", "student2"))


@dataclass(frozen=True)
class TrackedSamples:
    """The probabilities of three models of one seed for the same samples.

    Attributes:
        seed: of their runs.
        epochs: at which they were evaluated.
        probabilities: model → (epochs, samples) probability of the true class.
    """

    seed: int
    epochs: list[int]
    probabilities: dict[str, NDArray[np.float64]]

    def is_misclassified(self, model: str, when: int) -> NDArray[np.bool_]:
        """(samples,) whether ``model`` is wrong at the ``when``-th evaluated epoch."""
        wrong: NDArray[np.bool_] = self.probabilities[model][when] < 0.5
        return wrong

    @property
    def wrong_at_first(self) -> NDArray[np.bool_]:
        """(samples,) whether f₁ and fₛ are both wrong at the first evaluated epoch."""
        return self.is_misclassified("f₁", 0) & self.is_misclassified("fₛ", 0)

    def count_corrected(self, model: str) -> tuple[int, int]:
        """Number of samples that ``model`` corrected, and number that it had wrong at first."""
        wrong = self.is_misclassified(model, 0)
        return int((wrong & ~self.is_misclassified(model, -1)).sum()), int(wrong.sum())

    def share_correct(self, model: str) -> dict[int, float]:
        """Epoch → percent of ``wrong_at_first`` (at least one sample) that ``model`` has right."""
        right = self.probabilities[model][:, self.wrong_at_first] >= 0.5
        return dict(zip(self.epochs, (100 * right.mean(axis=1)).tolist(), strict=True))

    def probability(self, model: str, sample: int) -> dict[int, float]:
        """Epoch → probability that ``model`` gives to the true class of ``sample``."""
        values = self.probabilities[model][:, sample].tolist()
        return dict(zip(self.epochs, values, strict=True))

    def find_example(self) -> int | None:
        """A sample that f₁ and fₛ have wrong at first, and only f₁ has right at the end.

        Of several, the one on which they differ most at the end; None without any.
        """
        candidates = (
            self.wrong_at_first & ~self.is_misclassified("f₁", -1) & self.is_misclassified("fₛ", -1)
        )
        if not candidates.any():
            return None
        difference = self.probabilities["f₁"][-1] - self.probabilities["fₛ"][-1]
        return int(np.where(candidates, difference, -np.inf).argmax())


def read_tracked(dual_student: Run, mean_teacher: Run) -> TrackedSamples:
    """The models of two runs of the same seed, at the epochs that both have evaluated."""
    pair = {record["epoch"]: record["tracked"] for record in read_evaluated(dual_student)}
    single = {record["epoch"]: record["tracked"] for record in read_evaluated(mean_teacher)}
    epochs = sorted(pair.keys() & single.keys())
    probabilities = {
        model: np.array([pair[epoch][network] for epoch in epochs]) for model, network in _NETWORKS
    }
    probabilities["fₛ"] = np.array([single[epoch]["student"] for epoch in epochs])
    return TrackedSamples(dual_student.read_recipe().seed, epochs, probabilities)
