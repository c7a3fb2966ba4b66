"""Does Dual Student cost anything extra once it is trained?

    python benchmarks/inference_time.py

What is used after training is one student. Its network and a supervised one take turns in one
process on the same test images; the figure is the ratio of the medians.
"""

import time
from statistics import median

import torch
from torch import nn

from dualstudent import Trainer, load_recipe

ROUNDS = 30


def main() -> None:
    methods = ("supervised", "dual-student")
    trainings = {name: Trainer(load_recipe("digits", [f"method.name={name}"])) for name in methods}
    networks: dict[str, nn.Module] = {
        name: next(iter(trainer.method.evaluated.values())).eval()
        for name, trainer in trainings.items()
    }
    test = trainings["supervised"].data.test
    (images,) = test.make_views(torch.arange(len(test)), [None])
    times: dict[str, list[float]] = {name: [] for name in networks}
    with torch.inference_mode():
        for _ in range(ROUNDS):
            for name, network in networks.items():
                started = time.perf_counter()
                network(images)
                times[name].append(time.perf_counter() - started)
    for name, network in networks.items():
        parameters = sum(parameter.numel() for parameter in network.parameters())
        print(f"{name}: {parameters:,} parameters, {1000 * median(times[name][3:]):.1f} ms")
    ratio = median(times["dual-student"][3:]) / median(times["supervised"][3:])
    print(f"ratio {ratio:.3f} for {len(images):,} images")


if __name__ == "__main__":
    main()
