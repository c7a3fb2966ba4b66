"""Which images to label next: does the order of `dualstudent label` beat labeling at random?

    python benchmarks/label_next.py             # the five seeds that are reported
    python benchmarks/label_next.py --tune      # the seeds on which the order was chosen

3,000 of the embedded MNIST digits at 14 × 14 pixels, 50 of them labeled. A run is trained; an order
of the 2,950 others is made; the first k of it are given their true labels, and a run with the
same seed is trained from the beginning with 50 + k labels. Everything is the same but which k.
Orders are compared (`--tune`) on the 1,000 training digits that no run sees, and reported on the
1,000 test digits. It can be stopped at any time and continues when called again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from dualstudent import Recipe, Run, choose_images, load_recipe, load_trained
from dualstudent.data.embedded import load_mnist_5k
from dualstudent.data.samples import ImageSamples
from dualstudent.data.splits import write_manifest
from dualstudent.randomness import generator_for
from dualstudent.training.answers import Answers, answers
from dualstudent.training.evaluation import Evaluator, evaluation_mode

RESULTS = Path(__file__).parents[1] / "results" / "label-next"
IMAGES, LABELS, MORE = 3000, 50, (20, 50)
CHANGES = (
    f"data.images={IMAGES}",
    f"data.labels={LABELS}",
    "data.image_size=14",
    "augmentation.translate=1",
    "batch.size=64",
    "batch.labeled=16",
    "schedule.epochs=8",
    "schedule.rampup_epochs=2",
    "evaluation.every=8",
)


@dataclass(frozen=True)
class Pool:
    """What a trained run says of its N unlabeled images, and of its labeled ones."""

    said: Answers
    features: Tensor
    labeled_features: Tensor
    seed: int

    @property
    def doubt(self) -> Tensor:
        return 1 - self.said.probabilities.double().amax(dim=1)


def at_random(pool: Pool) -> Tensor:
    return torch.randperm(len(pool.doubt), generator=generator_for(pool.seed, "label at random"))


def least_sure(pool: Pool) -> Tensor:
    return pool.doubt.argsort(descending=True, stable=True)


def disputed(pool: Pool) -> Tensor:
    """Where the students disagree or one is unstable, the least sure first; then the others."""
    believed = pool.said.stable_for_all & pool.said.agree
    return (pool.doubt - believed.double()).argsort(descending=True, stable=True)


def farthest(pool: Pool) -> Tensor:
    """Far from all labeled and chosen images, times doubt."""
    return greedy_far(pool.features, pool.labeled_features, pool.doubt)


def unit(x: Tensor) -> Tensor:
    return torch.nn.functional.normalize(x.double(), dim=1)


def greedy_far(features: Tensor, labeled: Tensor, doubt: Tensor) -> Tensor:
    x, known = unit(features), unit(labeled)
    distance = torch.cdist(x, known).amin(dim=1)
    chosen = []
    for _ in range(max(MORE)):
        best = int((distance * doubt).argmax())
        chosen.append(best)
        distance = torch.minimum(distance, torch.cdist(x, x[best : best + 1]).squeeze(1))
    return torch.tensor(chosen)


def badge(pool: Pool) -> Tensor:
    """k-means++ on gradients of the class head (Ash et al., 2020)."""
    p = pool.said.probabilities.double()
    residual = p - torch.nn.functional.one_hot(p.argmax(dim=1), p.shape[1])
    gradients = (residual[:, :, None] * pool.features.double()[:, None, :]).flatten(1)
    draw = generator_for(pool.seed, "badge")
    chosen = [int(gradients.norm(dim=1).argmax())]
    distance = torch.full((len(p),), torch.inf, dtype=torch.float64)
    while len(chosen) < max(MORE):
        last = gradients[chosen[-1] : chosen[-1] + 1]
        distance = torch.minimum(distance, torch.cdist(gradients, last).squeeze(1))
        chosen.append(int(torch.multinomial(distance.square(), 1, generator=draw)))
    return torch.tensor(chosen)


def coverage(pool: Pool) -> Tensor:
    """Close to as much doubt as possible that is not close to a labeled or chosen image."""
    return greedy_cover(pool.features, pool.labeled_features, pool.doubt)


def typical(pool: Pool) -> Tensor:
    """The same, all images counting alike."""
    return greedy_cover(pool.features, pool.labeled_features, torch.ones_like(pool.doubt))


def greedy_cover(features: Tensor, labeled: Tensor, weight: Tensor) -> Tensor:
    x, known = unit(features), unit(labeled)
    nearest = torch.cdist(x, known).amin(dim=1).square()
    scale = nearest.mean()
    covered = (-nearest / scale).exp()
    near = (-torch.cdist(x, x).square() / scale).exp()
    chosen = []
    for _ in range(max(MORE)):
        gain = (near - covered).clamp(min=0) @ weight
        best = int(gain.argmax())
        chosen.append(best)
        covered = torch.maximum(covered, near[best])
    return torch.tensor(chosen)


TRIED: dict[str, Callable[[Pool], Tensor]] = {
    "random": at_random,
    "least sure": least_sure,
    "disputed": disputed,
    "farthest": farthest,
    "badge": badge,
    "coverage": coverage,
    "typical": typical,
}


def recipe_for(seed: int, *changes: str) -> Recipe:
    return load_recipe("demo", [*CHANGES, f"seed={seed}", *changes])


def pool_of(run: Run) -> Pool:
    training = load_trained(run)
    data, seed, device = training.data, training.recipe.seed, training.fabric.device
    said = Answers.joined(answers(training.method, data.train, data.unlabeled, seed, device))
    network = training.method.evaluated[training.method.exported]
    with evaluation_mode(network):
        features, known = (
            torch.cat(
                [network(data.train.views(p, [None])[0]).features for p in torch.split(at, 500)]
            )
            for at in (data.unlabeled, data.labeled)
        )
    return Pool(said, features, known, seed)


def second_round(
    first: dict[int, Run], orders: dict[str, Callable[[Pool], Tensor]], folder: Path
) -> dict[str, Recipe]:
    """Recipes with the labels of the first round and k more."""
    recipes = {}
    for seed, run in first.items():
        pool, data = pool_of(run), load_trained(run).data
        assert data.source is not None
        for name, order in orders.items():
            positions = data.unlabeled[order(pool)]
            for k in MORE:
                split = folder / f"{name}-{k}-{seed}.json"
                labeled = torch.cat([data.labeled, positions[:k]]).sort().values
                write_manifest(split, data.source, labeled, seed)
                recipes[split.stem] = recipe_for(seed, "data.labels=all", f"data.split={split}")
    return recipes


def error(run: Run, tune: bool) -> float:
    """In %, mean of the students: of the digits that no run sees, or of the test."""
    if not tune:
        return float(run.read_result()["error"])
    training, digits = load_trained(run), load_mnist_5k("train")
    seen = choose_images(digits, IMAGES, training.recipe.seed)
    others = torch.arange(len(digits))
    others = others[~torch.isin(others, seen)]
    pixels, recipe = digits.select(others).resized(14).pixels, training.recipe
    samples = ImageSamples(pixels, recipe.augmentation, recipe.normalisation)
    judge = Evaluator(samples, digits.labels[others], 0.5, recipe.seed)
    figures = judge.evaluate(training.method.evaluated).networks.values()
    return sum(each.error for each in figures) / len(figures)
