"""What a Dual Student step costs beyond the network passes it consists of.

    make bench        # or: python benchmarks/step_time.py [--rounds 60]

A step of the loop (data, transforms, losses, both students and optimizers) and the bare passes
(for each student one forward with backward, one forward without gradient, and the optimizer step,
in the same order, on a batch that lies ready) take turns in one process, so that both see the same
machine. The figure is the median over the ratios of neighbors. Run it while nothing else runs.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from statistics import median

import torch

from dualstudent import Trainer, load_recipe

RECIPE = ("digits", ["batch.size=256", "batch.labeled=32"])


def bare_passes(trainer: Trainer) -> Callable[[], None]:
    (images,) = trainer.data.train.make_views(torch.arange(256), [None])
    optimizers = [
        torch.optim.SGD(
            student.parameters(), lr=1e-6, momentum=0.9, weight_decay=1e-4, nesterov=True
        )
        for student in trainer.method.students
    ]

    def passes() -> None:
        total = torch.zeros(())
        for student in trainer.method.students:
            prediction = student(images)
            with torch.no_grad():
                student(images)
            total = total + prediction.class_logits.sum() + prediction.consistency_logits.sum()
        torch.autograd.backward(total)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    return passes


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    trainer = Trainer(load_recipe(*RECIPE))
    trainer.method.train()
    bare = bare_passes(trainer)
    steps, passes = [], []
    for step in range(rounds + 3):
        passes.append(seconds(bare))
        steps.append(seconds(partial(trainer.take_step, step)))
    del steps[:3], passes[:3]  # the warm-up
    ratio = median(step / bare for step, bare in zip(steps, passes, strict=True))
    print(f"{torch.get_num_threads()} thread(s), batch 256, digits CNN, {rounds} rounds")
    print(f"bare passes {1000 * median(passes):.1f} ms, step {1000 * median(steps):.1f} ms")
    print(f"ratio {ratio:.3f} (at most 1.15)")


if __name__ == "__main__":
    main()
