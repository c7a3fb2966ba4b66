"""What the tables of the paper cost on 1, 8 and 64 GPUs, computed from measured operations.

    python -m tests.bench.scaling [--utilization 0.3]

One step of each kind of run is taken on a CPU with a small batch; torch counts its floating-point
operations and the bytes that it keeps for the backward pass. Nothing is measured on a GPU. The rows
go into ``results/bench/scaling.csv``; docs/scaling.md has the formulas and the assumptions.
"""

import argparse
import csv
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from dualstudent import Recipe, Trainer
from dualstudent.data.batching.loader import BatchSettings
from dualstudent.experiments.cost import _make_black_images, count_steps
from dualstudent.experiments.plan import plan
from dualstudent.experiments.reading import load_experiment

OUT = Path("results/bench/scaling.csv")
TABLES = [f"table{number}" for number in range(1, 7)]
GPUS = (1, 8, 64)
PEAK = {"A100": 312e12, "H100": 989e12}  # dense bfloat16, as NVIDIA's data sheets say
SMALL = 8


@dataclass(frozen=True)
class Step:
    """What a step costs.

    Attributes:
        operations: floating-point operations for each image.
        kept: bytes for each image that the backward pass needs.
        weights: bytes of weights, gradients and momentum.
    """

    operations: float
    kept: float
    weights: float


def measure_step(recipe: Recipe) -> Step:
    batch = BatchSettings(size=SMALL, labeled=SMALL // 2)
    small = recipe.model_copy(update={"batch": batch, "device": recipe.device.one_process})
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.data_ptr()] = tensor.nbytes
        return tensor

    with closing(Trainer(small, _make_black_images(recipe, batch))) as trainer:
        method, passes = trainer.method.train(), list[tuple[nn.Module, Tensor, bool]]()
        for network in dict.fromkeys([*method.students, *method.networks.values()]):
            network.register_forward_pre_hook(
                lambda module, rows: passes.append((module, rows[0], torch.is_grad_enabled()))
            )
        with saved_tensors_hooks(note, lambda tensor: tensor):
            trainer.take_step(0)
        operations = sum(count_operations(*each) for each in list(passes))
        own = {parameter.data_ptr() for parameter in method.parameters()}
        activations = sum(size for place, size in kept.items() if place not in own)
        weights = sum(parameter.nbytes for parameter in method.parameters())
    return Step(operations / SMALL, activations / SMALL, 3 * weights)


def count_operations(network: nn.Module, rows: Tensor, with_gradient: bool) -> int:
    """A backward pass takes twice the operations of the forward pass."""
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        network(rows)
    forward: int = counter.get_total_flops()
    return 3 * forward if with_gradient else forward


class Steps:
    """Steps of recipes, each kind measured once."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Step] = {}

    def find(self, recipe: Recipe) -> Step:
        networks = recipe.method.networks(recipe.network)
        key = (recipe.method.name, *networks, recipe.data.source, recipe.data.image_size)
        if key not in self._known:
            self._known[key] = measure_step(recipe)
        return self._known[key]


def compute_hours(runs: Iterable[float], gpus: int, speed: float) -> float:
    """Hours if each run has a GPU of its own; at least those of the longest run."""
    each = [operations / speed / 3600 for operations in runs]
    return max(sum(each) / gpus, *each)


def describe(table: str, steps: Steps, utilization: float) -> dict[str, str]:
    recipes = list(plan(load_experiment(table), "full", None, (), "").runs().values())
    runs, memory = [], 0.0
    for recipe in recipes:
        stages = [(stage, steps.find(stage)) for stage in recipe.split_stages()]
        runs.append(
            sum(count_steps(stage) * stage.batch.size * step.operations for stage, step in stages)
        )
        needs = [stage.batch.size * step.kept + step.weights for stage, step in stages]
        memory = max(memory, *needs)
    hours = {
        f"{name}_x{gpus}_hours": f"{compute_hours(runs, gpus, utilization * peak):.1f}"
        for name, peak in PEAK.items()
        for gpus in GPUS
    }
    return {
        "table": table,
        "runs": str(len(runs)),
        "operations": f"{sum(runs):.2e}",
        **hours,
        "memory_gb": f"{memory / 2**30:.1f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--utilization", type=float, default=0.3, help="share of the peak")
    utilization = parser.parse_args().utilization
    torch.set_num_threads(1)
    steps, rows = Steps(), []
    for table in TABLES:
        rows.append(describe(table, steps, utilization))
        print(" | ".join(rows[-1].values()), flush=True)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    with OUT.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
