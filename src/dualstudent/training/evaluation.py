"""Evaluation of networks: errors, stable samples, and distances between networks."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor, nn

from dualstudent.data.samples import Samples
from dualstudent.networks.network import list_shapes
from dualstudent.stability import is_stable
from dualstudent.training.inference import run_inference


@dataclass(frozen=True)
class Evaluation:
    """Figures of one network on one labeled set, in percent.

    Attributes:
        error: error on clean samples.
        top5_error: share of samples whose true class is not among the five most probable; None
            for five classes or fewer.
        stable_share: share of stable samples (Eq. 3).
        stable_accuracy: accuracy on stable samples; None if there are none.
        class_accuracy: accuracy for each class; None for a class without samples.
        stable_class_accuracy: accuracy on stable samples for each class.
    """

    error: float
    top5_error: float | None
    stable_share: float
    stable_accuracy: float | None
    class_accuracy: list[float | None]
    stable_class_accuracy: list[float | None]


@dataclass(frozen=True)
class Distance:
    """Distance between two networks of the same architecture (Fig. 2).

    Attributes:
        weights: Euclidean distance of their parameters.
        predictions: mean Euclidean distance of their probabilities over the samples.
    """

    weights: float
    predictions: float


@dataclass(frozen=True)
class Evaluations:
    """The result of one evaluation.

    Attributes:
        networks: name → figures.
        distances: ``"name-name"`` → distance, for all pairs of the same architecture.
        tracked: name → probability of the true class, for the first test samples.
    """

    networks: dict[str, Evaluation]
    distances: dict[str, Distance]
    tracked: dict[str, list[float]]


class Evaluator:
    """Evaluates networks, every time on the same test samples and perturbations.

    In Eq. 3, x is the clean sample and x̄ a weak view. Samples that cannot be read are skipped.

    Args:
        samples: the test set.
        labels: (N,) int64; only the first N samples are used.
        threshold: ξ of Eq. 3.
        seed: seed of the perturbations.
        track: number of samples whose probability of the true class is recorded.
        device: device of the networks.
        of_source: tell networks with batch norm by domain that all samples are of the source.

    Example:
        >>> from dualstudent import DataSettings, DigitsCNN, prepare
        >>> data = prepare(DataSettings(source="digits-8x8", labels=50), seed=0)
        >>> evaluator = Evaluator(data.test, data.test_labels, threshold=0.6, seed=0)
        >>> untrained = evaluator.evaluate({"student": DigitsCNN()}).networks["student"]
        >>> untrained.error > 50
        True
    """

    def __init__(
        self,
        samples: Samples,
        labels: Tensor,
        threshold: float,
        seed: int,
        track: int = 0,
        device: torch.device | str = "cpu",
        of_source: bool = False,
    ) -> None:
        self._samples, self._labels = samples, labels.to(device)
        self._of_source = of_source
        self._threshold, self._seed, self._track = threshold, seed, track
        self._device = device

    def evaluate(self, networks: Mapping[str, nn.Module]) -> Evaluations:
        """Evaluate all networks in one pass; without samples the result is empty."""
        if len(self._labels) == 0:
            return Evaluations({}, {}, {})
        pairs = [
            (one, other)
            for one, other in combinations(networks, 2)
            if list_shapes(networks[one]) == list_shapes(networks[other])
        ]
        pieces: dict[str, list[_SampleResults]] = {name: [] for name in networks}
        distances = torch.zeros(len(pairs), device=self._device)
        everything = torch.arange(len(self._labels))
        for outputs in run_inference(
            networks, self._samples, everything, self._seed, self._device, self._of_source
        ):
            labels, probabilities = self._labels[outputs.indices], {}
            for name in networks:
                p, p_perturbed = (
                    view[name].class_logits.softmax(dim=1)
                    for view in (outputs.clean, outputs.perturbed)
                )
                pieces[name].append(_evaluate_samples(p, p_perturbed, labels, self._threshold))
                probabilities[name] = p
            for number, (one, other) in enumerate(pairs):
                distances[number] += (probabilities[one] - probabilities[other]).norm(dim=1).sum()
        results = {name: _SampleResults.join(of_network) for name, of_network in pieces.items()}
        return Evaluations(
            {name: result.summarize() for name, result in results.items()},
            {
                f"{one}-{other}": Distance(
                    _compute_weight_distance(networks[one], networks[other]),
                    total / len(results[one].labels),
                )
                for (one, other), total in zip(pairs, distances.tolist(), strict=True)
            },
            {name: result.truth[: self._track].tolist() for name, result in results.items()}
            if self._track
            else {},
        )


@dataclass(frozen=True)
class _SampleResults:
    """Results of one network per sample, (n,) each.

    ``rank`` is the number of classes with a larger probability than the true one, ``truth`` the
    probability of the true class.
    """

    rank: Tensor
    stable: Tensor
    truth: Tensor
    labels: Tensor
    classes: int

    @staticmethod
    def join(pieces: "list[_SampleResults]") -> "_SampleResults":
        return _SampleResults(
            torch.cat([piece.rank for piece in pieces]),
            torch.cat([piece.stable for piece in pieces]),
            torch.cat([piece.truth for piece in pieces]),
            torch.cat([piece.labels for piece in pieces]),
            pieces[0].classes,
        )

    def summarize(self) -> Evaluation:
        correct, stable = self.rank == 0, self.stable
        every = torch.ones_like(stable)
        return Evaluation(
            error=_compute_percent(~correct, every) or 0.0,
            top5_error=_compute_percent(self.rank >= 5, every) if self.classes > 5 else None,
            stable_share=_compute_percent(stable, every) or 0.0,
            stable_accuracy=_compute_percent(correct, stable),
            class_accuracy=self._compute_class_accuracy(correct, every),
            stable_class_accuracy=self._compute_class_accuracy(correct, stable),
        )

    def _compute_class_accuracy(self, correct: Tensor, among: Tensor) -> list[float | None]:
        right = self.labels[correct & among].bincount(minlength=self.classes).tolist()
        total = self.labels[among].bincount(minlength=self.classes).tolist()
        return [100 * r / t if t else None for r, t in zip(right, total, strict=True)]


def _evaluate_samples(
    p: Tensor, p_perturbed: Tensor, labels: Tensor, threshold: float
) -> _SampleResults:
    classes = p.shape[1]
    # Ties are ordered as by argmax.
    order = p.argsort(dim=1, descending=True, stable=True)
    rank = (order == labels[:, None]).int().argmax(dim=1)
    truth = p.gather(1, labels[:, None]).squeeze(1)
    return _SampleResults(rank, is_stable(p, p_perturbed, threshold), truth, labels, classes)


def _compute_percent(which: Tensor, among: Tensor) -> float | None:
    total = int(among.sum())
    return 100 * int((which & among).sum()) / total if total else None


def _compute_weight_distance(one: nn.Module, other: nn.Module) -> float:
    with torch.no_grad():
        squares = [
            (p - q).square().sum()
            for p, q in zip(one.parameters(), other.parameters(), strict=True)
        ]
        return torch.stack(squares).sum().sqrt().item()
