"""How good networks are, how far their stable predictions can be trusted, how far they differ."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor, nn

from dualstudent.data.batching.prefetch import Prefetch
from dualstudent.data.batching.readers import ChunkReader
from dualstudent.data.samples import Samples
from dualstudent.stability import is_stable

CHUNK = 250  # bounds memory: CNN13 makes half a megabyte an image and layer


@dataclass(frozen=True)
class Evaluation:
    """Figures of one network on one labeled set, all in percent.

    Attributes:
        error: of the clean samples.
        top5_error: the truth is not among the first five; None for five classes or fewer.
        stable_share: how many samples are stable for the network.
        stable_accuracy: on those alone; None if there are none.
        class_accuracy: class by class; None where the set has no sample of it.
        stable_class_accuracy: the same on stable samples alone.
    """

    error: float
    top5_error: float | None
    stable_share: float
    stable_accuracy: float | None
    class_accuracy: list[float | None]
    stable_class_accuracy: list[float | None]


@dataclass(frozen=True)
class Distance:
    """How far two networks of one architecture are apart (Fig. 2).

    Attributes:
        weights: Euclidean distance of all their parameters.
        predictions: Euclidean distance of their probabilities, on average over the samples.
    """

    weights: float
    predictions: float


@dataclass(frozen=True)
class Evaluations:
    """What one look at the test set tells.

    Attributes:
        networks: name → figures.
        distances: ``"name-name"`` → distance, for every two networks of one architecture.
        tracked: name → probability of the truth, for the first test samples.
    """

    networks: dict[str, Evaluation]
    distances: dict[str, Distance]
    tracked: dict[str, list[float]]


@contextmanager
def evaluation_mode(*networks: nn.Module) -> Iterator[None]:
    """Without gradient, dropout and batch statistics; the networks' modes are restored after."""
    modes = [network.training for network in networks]
    for network in networks:
        network.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        for network, was_training in zip(networks, modes, strict=True):
            network.train(was_training)


class Evaluator:
    """Evaluates networks on the same test samples and the same perturbations every time.

    At test time x is the clean sample and x̄ one perturbed view of it. Samples that cannot be
    read take no part.

    Args:
        samples: the test set.
        labels: (N,) int64.
        threshold: the ξ of Eq. 3.
        seed: decides the perturbations.
        track: of how many samples the probability of the truth is kept.
        device: where networks live.
    """

    def __init__(
        self,
        samples: Samples,
        labels: Tensor,
        threshold: float,
        seed: int,
        track: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        self._samples, self._labels = samples, labels.to(device)
        self._threshold, self._track, self._device = threshold, track, device
        self._chunks = math.ceil(len(labels) / CHUNK)
        self._look = ChunkReader(samples, torch.arange(len(labels)), CHUNK, seed, device)

    def evaluate(self, networks: Mapping[str, nn.Module]) -> Evaluations:
        """Look at every test sample once, with all ``networks``; no samples, no figures."""
        if len(self._labels) == 0:
            return Evaluations({}, {}, {})
        alike = [
            (one, other)
            for one, other in combinations(networks, 2)
            if _shapes(networks[one]) == _shapes(networks[other])
        ]
        chunks: dict[str, list[_Verdict]] = {name: [] for name in networks}
        apart = torch.zeros(len(alike), device=self._device)
        with (
            evaluation_mode(*networks.values()),
            Prefetch(self._look, self._samples, self._device, end=self._chunks) as looks,
        ):
            for look in map(looks.get, range(self._chunks)):
                probabilities, labels = {}, self._labels[look.indices]
                for name, network in networks.items():
                    p, p_perturbed = (network(v).class_logits.softmax(dim=1) for v in look.views)
                    chunks[name].append(_judged(p, p_perturbed, labels, self._threshold))
                    probabilities[name] = p
                for number, (one, other) in enumerate(alike):
                    apart[number] += (probabilities[one] - probabilities[other]).norm(dim=1).sum()
        verdicts = {name: _Verdict.joined(pieces) for name, pieces in chunks.items()}
        return Evaluations(
            {name: verdict.figures() for name, verdict in verdicts.items()},
            {
                f"{one}-{other}": Distance(
                    _weight_distance(networks[one], networks[other]),
                    total / len(verdicts[one].labels),
                )
                for (one, other), total in zip(alike, apart.tolist(), strict=True)
            },
            {name: verdict.truth[: self._track].tolist() for name, verdict in verdicts.items()}
            if self._track
            else {},
        )


@dataclass(frozen=True)
class _Verdict:
    """Of one network, sample by sample: (n,) each; ``rank`` is how many classes beat the truth."""

    rank: Tensor
    stable: Tensor
    truth: Tensor
    labels: Tensor
    classes: int

    @staticmethod
    def joined(pieces: "list[_Verdict]") -> "_Verdict":
        return _Verdict(
            torch.cat([piece.rank for piece in pieces]),
            torch.cat([piece.stable for piece in pieces]),
            torch.cat([piece.truth for piece in pieces]),
            torch.cat([piece.labels for piece in pieces]),
            pieces[0].classes,
        )

    def figures(self) -> Evaluation:
        correct, stable = self.rank == 0, self.stable
        every = torch.ones_like(stable)
        return Evaluation(
            error=_percent(~correct, every) or 0.0,
            top5_error=_percent(self.rank >= 5, every) if self.classes > 5 else None,
            stable_share=_percent(stable, every) or 0.0,
            stable_accuracy=_percent(correct, stable),
            class_accuracy=self._by_class(correct, every),
            stable_class_accuracy=self._by_class(correct, stable),
        )

    def _by_class(self, correct: Tensor, among: Tensor) -> list[float | None]:
        right = self.labels[correct & among].bincount(minlength=self.classes).tolist()
        total = self.labels[among].bincount(minlength=self.classes).tolist()
        return [100 * r / t if t else None for r, t in zip(right, total, strict=True)]


def _judged(p: Tensor, p_perturbed: Tensor, labels: Tensor, threshold: float) -> _Verdict:
    classes = p.shape[1]
    # The place of the truth in the order of the answers; equals are ordered like argmax does.
    order = p.argsort(dim=1, descending=True, stable=True)
    rank = (order == labels[:, None]).int().argmax(dim=1)
    truth = p.gather(1, labels[:, None]).squeeze(1)
    return _Verdict(rank, is_stable(p, p_perturbed, threshold), truth, labels, classes)


def _percent(which: Tensor, among: Tensor) -> float | None:
    total = int(among.sum())
    return 100 * int((which & among).sum()) / total if total else None


def _shapes(network: nn.Module) -> list[tuple[str, torch.Size]]:
    return [(name, parameter.shape) for name, parameter in network.named_parameters()]


def _weight_distance(one: nn.Module, other: nn.Module) -> float:
    with torch.no_grad():
        squares = [
            (p - q).square().sum()
            for p, q in zip(one.parameters(), other.parameters(), strict=True)
        ]
        return torch.stack(squares).sum().sqrt().item()
