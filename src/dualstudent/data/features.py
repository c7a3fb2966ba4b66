"""Feature vectors: standardization, and perturbation by noise and dropout."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from dualstudent.data.samples import Digest, Samples, hash_tensor
from dualstudent.data.transforms.policy import Draw
from dualstudent.settings import Settings

_ROWS_AT_A_TIME = 4096
_LARGEST = float(np.finfo(np.float32).max)


class FeaturePerturbation(Settings):
    """Perturbation of a view of feature vectors; all off by default."""

    noise: float = Field(0.0, ge=0, description="σ of Gaussian noise, in standard deviations")
    dropout: float = Field(0.0, ge=0, lt=1, description="share of features replaced by their mean")


@dataclass(frozen=True)
class Standardization:
    """Scales every feature to mean 0 and standard deviation 1, measured on training data.

    Attributes:
        mean: (features,) float64.
        std: (features,) float64, 1 for a constant feature.
    """

    mean: NDArray[np.float64]
    std: NDArray[np.float64]

    @classmethod
    def measure(cls, vectors: NDArray[Any]) -> "Standardization":
        """Measure mean and standard deviation of ``vectors`` (N, features)."""
        power = _find_powers(vectors)
        if (power != 1).any():
            vectors = vectors / power
        mean = vectors.mean(axis=0, dtype=np.float64)
        std = vectors.std(axis=0, dtype=np.float64)
        # A constant feature may have a tiny standard deviation from rounding errors.
        constant = std <= 10 * np.finfo(np.float64).eps * np.abs(mean)
        return cls(mean * power, np.where(constant, 1.0, std * power))

    @classmethod
    def measure_jointly(cls, vectors: NDArray[Any]) -> "Standardization":
        """Like :meth:`measure`, but with one standard deviation for all features.

        Features of a trained network keep their weight: those that vary more say more.
        """
        each = cls.measure(vectors)
        common = np.sqrt(vectors.var(axis=0, dtype=np.float64).mean())
        return cls(each.mean, np.full_like(each.std, common or 1.0))

    def apply(self, vectors: NDArray[Any]) -> Tensor:
        """Standardize ``vectors`` to (N, features) float32; computed in double precision.

        Example:
            >>> vectors = np.array([[1.0, 7.0], [3.0, 7.0]])
            >>> Standardization.measure(vectors).apply(vectors).tolist()
            [[-1.0, 0.0], [1.0, 0.0]]
        """
        scaled = torch.empty(vectors.shape, dtype=torch.float32)
        for start in range(0, len(vectors), _ROWS_AT_A_TIME):
            rows = slice(start, start + _ROWS_AT_A_TIME)
            with np.errstate(over="ignore"):  # of new samples that are far from all others
                values = (vectors[rows] - self.mean) / self.std
            scaled[rows] = torch.from_numpy(values.clip(-_LARGEST, _LARGEST))
        return scaled


def _find_powers(vectors: NDArray[Any]) -> NDArray[np.float64]:
    """Return (features,): a power of 2 near the largest value of a feature, 1 if it is usual.

    Squares of extreme values would become 0 or infinite; divided by a power of 2, nothing is
    rounded.
    """
    ends = np.stack([vectors.min(axis=0), vectors.max(axis=0)]).astype(np.float64)
    largest = np.abs(ends).max(axis=0)
    usual = (largest == 0) | ((largest > 1e-100) & (largest < 1e100))
    return np.where(usual, 1.0, np.ldexp(1.0, np.frexp(largest)[1] - 1))


class FeatureSamples(Samples):
    """Standardized feature vectors in memory.

    Args:
        vectors: (N, features) float32, standardized.
        weak: perturbation of weak views.
        standardization: how ``vectors`` were standardized; saved with the trained model.
        strong: perturbation of strong views; default: none.

    Example:
        >>> table = np.array([[1.0, 7.0], [3.0, 8.0]])
        >>> scale = Standardization.measure(table)
        >>> samples = FeatureSamples(scale.apply(table), FeaturePerturbation(noise=0.1), scale)
        >>> draw = Draw("weak", torch.Generator())
        >>> clean, noisy = samples.make_views(torch.tensor([1]), [None, draw])
        >>> clean.tolist(), bool((noisy == clean).any())
        ([[1.0, 1.0]], False)
    """

    def __init__(
        self,
        vectors: Tensor,
        weak: FeaturePerturbation,
        standardization: Standardization,
        strong: FeaturePerturbation | None = None,
    ) -> None:
        self.standardization = standardization
        self._vectors, self._weak = vectors, weak
        self._strong = strong or FeaturePerturbation()
        self.has_strong_views = self._strong != FeaturePerturbation()

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._vectors.shape[1:])

    @property
    def value_range(self) -> float:
        return float(self._vectors.max() - self._vectors.min())

    def __len__(self) -> int:
        return len(self._vectors)

    def make_views(self, indices: Tensor, draws: Sequence[Draw | None]) -> list[Tensor]:
        chosen = self._vectors[indices.to(self._vectors.device, non_blocking=True)]
        return [chosen if draw is None else self._perturb(chosen, draw) for draw in draws]

    def update_digest(self, digest: Digest) -> None:
        hash_tensor(digest, self._vectors)

    def preprocessing(self) -> dict[str, Tensor]:
        scale = self.standardization
        return {"mean": torch.from_numpy(scale.mean), "std": torch.from_numpy(scale.std)}

    def to(self, device: torch.device | str) -> Self:
        return type(self)(self._vectors.to(device), self._weak, self.standardization, self._strong)

    def _perturb(self, vectors: Tensor, draw: Draw) -> Tensor:
        how, generator = self._strong if draw.policy == "strong" else self._weak, draw.generator
        view, shard = vectors.clone(), draw.shard
        if how.noise:
            noise = shard.make_whole(vectors).normal_(std=how.noise, generator=generator)
            view += shard.select(noise)
        if how.dropout:
            drawn = shard.make_whole(vectors).uniform_(generator=generator)
            view.masked_fill_(shard.select(drawn) < how.dropout, 0.0)  # 0 is the mean
        return view
