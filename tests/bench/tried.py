"""What could make a step faster, and does: each row against the plain pass, as ratios of CPU time.

    OMP_NUM_THREADS=1 python -m tests.bench.tried

Forward and backward passes of one network on a batch that lies ready; both sides take turns, one
thread. CPU time, so that a busy machine matters less. Below 1 is faster than plain.
"""

import copy
import csv
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median, quantiles

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from dualstudent import CNN13, DigitsCNN

OUT = Path("results/bench/tried.csv")
ROUNDS = 15


def learn(network: nn.Module, *batches: Tensor) -> Callable[[], None]:
    def passes() -> None:
        for batch in batches:
            found = network(batch)
            torch.autograd.backward(found.class_logits.sum() + found.consistency_logits.sum())
        network.zero_grad()

    return passes


def learn_stacked(networks: Sequence[nn.Module], images: Tensor) -> Callable[[], None]:
    """Both students in one pass of stacked weights, each on its own copy of the rows."""
    weights, buffers = stack_module_state(list(networks))
    shell = copy.deepcopy(networks[0]).to("meta")

    def run(weights: dict[str, Tensor], buffers: dict[str, Tensor], rows: Tensor) -> Tensor:
        found = functional_call(shell, (weights, buffers), (rows,))
        total: Tensor = found.class_logits.sum() + found.consistency_logits.sum()
        return total

    rows = torch.stack([images] * len(networks))

    def passes() -> None:
        total = vmap(run, randomness="different")(weights, buffers, rows).sum()
        torch.autograd.grad(total, list(weights.values()))

    return passes


def learn_in_turn(networks: Sequence[nn.Module], images: Tensor) -> Callable[[], None]:
    works = [learn(network, images) for network in networks]

    def passes() -> None:
        for work in works:
            work()

    return passes


def in_bfloat16(work: Callable[[], None]) -> Callable[[], None]:
    def passes() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            work()

    return passes


def seconds(work: Callable[[], None]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


Rows = dict[str, tuple[Callable[[], None], Callable[[], None]]]


def list_rows(network: nn.Module, images: Tensor) -> Rows:
    """Name → what was tried, and what it is compared with."""
    nchw, plain = images.contiguous(), learn(network, images, images)
    compiled: nn.Module = torch.compile(network)  # type: ignore[assignment]
    students = network, copy.deepcopy(network)
    return {
        "channels first": (learn(network, nchw, nchw), plain),
        "both views in one pass": (learn(network, torch.cat([images, images])), plain),
        "both students in one pass": (
            learn_stacked(students, images),
            learn_in_turn(students, images),
        ),
        "bfloat16": (in_bfloat16(plain), plain),
        "torch.compile": (learn(compiled, images, images), plain),
    }


def main() -> None:
    torch.set_num_threads(1)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    kinds = {
        "digits CNN, batch 256": (DigitsCNN(), torch.rand(256, 1, 28, 28)),
        "13-layer CNN, batch 16": (CNN13(), torch.rand(16, 3, 32, 32)),
    }
    with OUT.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["network", "tried", "ratio", "from", "to"])
        for kind, (network, drawn) in kinds.items():
            images = drawn.contiguous(memory_format=torch.channels_last)
            for name, (other, plain) in list_rows(network, images).items():
                for _ in range(3):
                    plain(), other()
                ratios = [seconds(other) / seconds(plain) for _ in range(ROUNDS)]
                low, _, high = quantiles(ratios, n=4)
                row = [kind, name, *(f"{each:.2f}" for each in (median(ratios), low, high))]
                writer.writerow(row)
                print(" | ".join(row), flush=True)


if __name__ == "__main__":
    main()
