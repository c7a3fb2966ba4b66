"""Test samples of two classes that were watched through training, and what became of them.

f₁ and f₂ are the students of Dual Student, fₛ is the student of Mean Teacher that began in the
same state as f₁. With two classes a sample is misclassified if the probability of its true class
is below ½.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualstudent.experiments.figures.series import evaluated
from dualstudent.training.run import Run

MODELS = ("f₁", "f₂", "fₛ")
_NETWORKS = (("f₁", "student1"), ("f₂", "student2"))


@dataclass(frozen=True)
class Tracked:
    """The three models of one seed on the same samples.

    Attributes:
        seed: of their runs.
        epochs: at which they were evaluated.
        probabilities: model → (epochs, samples) probability of the true class.
    """

    seed: int
    epochs: list[int]
    probabilities: dict[str, NDArray[np.float64]]

    def misclassified(self, model: str, when: int) -> NDArray[np.bool_]:
        """(samples,) whether ``model`` is wrong at the ``when``-th evaluated epoch."""
        wrong: NDArray[np.bool_] = self.probabilities[model][when] < 0.5
        return wrong

    @property
    def wrong_at_first(self) -> NDArray[np.bool_]:
        """(samples,) whether f₁ and fₛ are both wrong at the first evaluated epoch."""
        return self.misclassified("f₁", 0) & self.misclassified("fₛ", 0)

    def corrected(self, model: str) -> tuple[int, int]:
        """How many samples ``model`` had wrong at first and right at the end; and of how many."""
        wrong = self.misclassified(model, 0)
        return int((wrong & ~self.misclassified(model, -1)).sum()), int(wrong.sum())

    def share_right(self, model: str) -> dict[int, float]:
        """Epoch → percent of ``wrong_at_first``, at least one sample, that the model has right."""
        right = self.probabilities[model][:, self.wrong_at_first] >= 0.5
        return dict(zip(self.epochs, (100 * right.mean(axis=1)).tolist(), strict=True))

    def probability(self, model: str, sample: int) -> dict[int, float]:
        """Epoch → probability that ``model`` gives to the true class of ``sample``."""
        values = self.probabilities[model][:, sample].tolist()
        return dict(zip(self.epochs, values, strict=True))

    def example(self) -> int | None:
        """The sample to show: wrong at first for both, at the end right for f₁ alone.

        Of several, the one on which they differ most at the end, and of those the first.
        """
        candidates = (
            self.wrong_at_first & ~self.misclassified("f₁", -1) & self.misclassified("fₛ", -1)
        )
        if not candidates.any():
            return None
        difference = self.probabilities["f₁"][-1] - self.probabilities["fₛ"][-1]
        return int(np.where(candidates, difference, -np.inf).argmax())


def read_tracked(dual_student: Run, mean_teacher: Run) -> Tracked:
    """The models of two runs of the same seed, at the epochs that both have evaluated."""
    pair = {record["epoch"]: record["tracked"] for record in evaluated(dual_student)}
    single = {record["epoch"]: record["tracked"] for record in evaluated(mean_teacher)}
    epochs = sorted(pair.keys() & single.keys())
    probabilities = {
        model: np.array([pair[epoch][network] for epoch in epochs]) for model, network in _NETWORKS
    }
    probabilities["fₛ"] = np.array([single[epoch]["student"] for epoch in epochs])
    return Tracked(dual_student.read_recipe().seed, epochs, probabilities)
