"""What could make a step faster, and does: each row against the plain pass, as ratios of CPU time.

    OMP_NUM_THREADS=1 python -m tests.bench.tried

Forward and backward passes of one network on a batch that lies ready; both sides take turns, one
thread. CPU time, so that a busy machine matters less. Below 1 is faster than plain.
"""

import csv
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles

import torch
from torch import Tensor, nn

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


def in_bfloat16(work: Callable[[], None]) -> Callable[[], None]:
    def passes() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            work()

    return passes


def seconds(work: Callable[[], None]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def list_rows(network: nn.Module, images: Tensor) -> dict[str, Callable[[], None]]:
    nchw = images.contiguous()
    return {
        "channels first": learn(network, nchw, nchw),
        "both views in one pass": learn(network, torch.cat([images, images])),
        "bfloat16": in_bfloat16(learn(network, images, images)),
        "torch.compile": learn(torch.compile(network), images, images),  # type: ignore[arg-type]
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
            plain = learn(network, images, images)
            for name, other in list_rows(network, images).items():
                for _ in range(3):
                    plain(), other()
                ratios = [seconds(other) / seconds(plain) for _ in range(ROUNDS)]
                low, _, high = quantiles(ratios, n=4)
                row = [kind, name, *(f"{each:.2f}" for each in (median(ratios), low, high))]
                writer.writerow(row)
                print(" | ".join(row), flush=True)


if __name__ == "__main__":
    main()
