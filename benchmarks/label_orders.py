"""Orders in which the unlabeled images of a run could be labeled, of which one was chosen.

Each maps a pool to places in it, those to label first in front; the first k are what it proposes
for any k.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from dualstudent import (
    Predictions,
    Run,
    Trainer,
    extract_features,
    load_trained,
    make_generator,
    predict,
    select_for_labeling,
)

LONGEST = 50  # nobody asks for more


@dataclass(frozen=True)
class Pool:
    """The unlabeled images of a trained run, what it says of them, and its labeled images."""

    trainer: Trainer
    said: Predictions
    features: Tensor
    labeled: Tensor

    @classmethod
    def of(cls, run: Run) -> "Pool":
        trainer = load_trained(run)
        data, seed, device = trainer.data, trainer.recipe.seed, trainer.fabric.device
        said = Predictions.join(predict(trainer.method, data.train, data.unlabeled, seed, device))
        features = (extract_features(trainer, which) for which in (data.unlabeled, data.labeled))
        return cls(trainer, said, *features)

    @property
    def doubt(self) -> Tensor:
        return 1 - self.said.probabilities.amax(dim=1)

    def draw(self, purpose: str) -> torch.Generator:
        return make_generator(self.trainer.recipe.seed, purpose)


def at_random(pool: Pool) -> Tensor:
    return torch.randperm(len(pool.doubt), generator=pool.draw("label at random"))


def least_sure(pool: Pool) -> Tensor:
    return pool.doubt.argsort(descending=True, stable=True)


def disputed(pool: Pool) -> Tensor:
    """Where the students disagree or one is unstable, the least sure first; then the others."""
    believed = pool.said.stable_for_all & pool.said.agree
    return (pool.doubt - believed.float()).argsort(descending=True, stable=True)


def farthest(pool: Pool) -> Tensor:
    """Far from all that is labeled or chosen, times doubt."""
    x, known = F.normalize(pool.features, dim=1), F.normalize(pool.labeled, dim=1)
    distance, chosen = torch.cdist(x, known).amin(dim=1), []
    for _ in range(LONGEST):
        chosen.append(int((distance * pool.doubt).argmax()))
        distance = torch.minimum(distance, torch.cdist(x, x[chosen[-1:]]).squeeze(1))
    return torch.tensor(chosen)


def badge(pool: Pool) -> Tensor:
    """k-means++ on gradients of the class head (Ash et al., ICLR 2020)."""
    p, draw = pool.said.probabilities.double(), pool.draw("badge")
    residual = p - F.one_hot(p.argmax(dim=1), p.shape[1])
    gradients = (residual[:, :, None] * pool.features.double()[:, None, :]).flatten(1)
    chosen = [int(gradients.norm(dim=1).argmax())]
    distance = torch.full((len(p),), torch.inf, dtype=torch.float64)
    while len(chosen) < LONGEST:
        distance = torch.minimum(distance, torch.cdist(gradients, gradients[chosen[-1:]])[:, 0])
        chosen.append(int(torch.multinomial(distance.square(), 1, generator=draw)))
    return torch.tensor(chosen)


def typical(pool: Pool) -> Tensor:
    """Near as many images as possible that are not near a labeled or chosen one."""
    return select_for_labeling(torch.ones_like(pool.doubt), pool.features, pool.labeled)


def doubt_nearby(pool: Pool) -> Tensor:
    """The same, images counting by their doubt: what `dualstudent label` does."""
    return select_for_labeling(pool.doubt, pool.features, pool.labeled)


ORDERS: dict[str, Callable[[Pool], Tensor]] = {
    "random": at_random,
    "least sure": least_sure,
    "disputed": disputed,
    "farthest": farthest,
    "badge": badge,
    "typical": typical,
    "coverage": doubt_nearby,
}
