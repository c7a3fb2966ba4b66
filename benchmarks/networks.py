"""Which network learns most in the little time of a CPU? Accuracy against seconds of training.

    python benchmarks/networks.py             # about 20 minutes on one core

Every design on three tasks (28 px gray, 32 and 64 px color) with all labels of up to 6,000 images,
weak views, batches of 128, and a cosine that ends with the time; error on validation images from
the training part. Seconds are those of one core, spent by the training alone. It can be stopped at
any time and continues when called again. Writes `results/networks/` and
`docs/images/networks.png`.
"""

import math
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn import functional as F

from dualstudent import (
    CNN13,
    DigitsCNN,
    Draw,
    Prediction,
    PreparedData,
    QuickCNN,
    Transforms,
    WhitenedCNN,
)
from tables import light_frame, run_trials, write_table
from validation_tasks import MAY_BE_MIRRORED, prepare_task

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "networks"
PICTURE = ROOT / "docs" / "images" / "networks.png"
TASKS = {"mnist-5k": "28 px, gray", "CIFAR-10": "32 px, color", "clothing, 64 px": "64 px, color"}
BUDGETS = (10, 30)  # seconds of one core
BATCH, PEAK = 128, 0.1


class SmallResNet(nn.Module):
    """A stem and three residual blocks of 16, 32 and 64 channels, as in ResNet-8."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(_conv(channels, 16), nn.ReLU())
        self.blocks = nn.ModuleList(
            [_Residual(16, 16, 1), _Residual(16, 32, 2), _Residual(32, 64, 2)]
        )
        self.head = nn.Linear(64, classes)

    def forward(self, images: Tensor) -> Prediction:
        maps = self.stem(images)
        for block in self.blocks:
            maps = block(maps)
        features = maps.mean(dim=(2, 3))
        logits = self.head(features)
        return Prediction(logits, logits, features)


class _Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _conv(inputs, outputs, stride), nn.ReLU(), _conv(outputs, outputs)
        )
        self.short = nn.Identity() if inputs == outputs else _conv(inputs, outputs, stride, 1)

    def forward(self, maps: Tensor) -> Tensor:
        return F.relu(self.body(maps) + self.short(maps))


def _conv(inputs: int, outputs: int, stride: int = 1, kernel: int = 3) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
    )


def _whitened(*widths: int) -> Callable[[int, int], nn.Module]:
    return lambda channels, classes: WhitenedCNN(channels, classes, widths)


DESIGNS: dict[str, Callable[[int, int], nn.Module]] = {
    "digits-cnn": DigitsCNN,
    "quick-cnn": QuickCNN,
    "cnn13": CNN13,
    "ResNet-8": SmallResNet,
    "whitened-cnn 64, 128 (wide, shallow)": _whitened(64, 128),
    "whitened-cnn 16, 32, 64": _whitened(16, 32, 64),
    "whitened-cnn 32, 64, 128": _whitened(32, 64, 128),
    "whitened-cnn 16, 32, 64, 128": _whitened(16, 32, 64, 128),
}


def main() -> None:
    torch.set_num_threads(1)
    trials = [
        {"budget": budget, "task": task, "design": design}
        for budget in BUDGETS
        for task in TASKS
        for design in DESIGNS
    ]
    write_results(run_trials(RESULTS / "networks.csv", trials, measure))


def measure(budget: int, task: str, design: str) -> dict[str, float]:
    views = {"weak": {"translate": 2, "flip": task in MAY_BE_MIRRORED}}
    data = prepare_task(task, None, 0, Transforms.model_validate(views))
    torch.manual_seed(0)
    network = DESIGNS[design](data.train.shape[0], len(data.classes))
    if isinstance(network, WhitenedCNN):
        network.fit_to(data.train.make_views(torch.arange(512), [None])[0])
    steps, seconds = train(network, data, budget)
    error = evaluate(network, data)
    return {"error": round(error, 2), "steps": steps, "seconds": round(seconds, 1)}


def train(network: nn.Module, data: PreparedData, budget: int) -> tuple[int, float]:
    """Train until the time is up; the learning rate follows the time."""
    optimizer = torch.optim.SGD(
        network.parameters(), lr=PEAK, momentum=0.9, weight_decay=5e-4, nesterov=True
    )
    generator, start = torch.Generator().manual_seed(0), time.process_time()
    for step in count():
        passed = (time.process_time() - start) / budget
        if passed >= 1:
            return step, time.process_time() - start
        rate = PEAK * min(1, passed / 0.1, (1 + math.cos(math.pi * passed)) / 2)
        optimizer.param_groups[0]["lr"] = rate
        chosen = torch.randint(len(data.labels), (BATCH,), generator=generator)
        (images,) = data.train.make_views(chosen, [Draw("weak", generator)])
        loss = F.cross_entropy(network(images).class_logits, data.labels[chosen])
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    raise AssertionError


@torch.no_grad()
def evaluate(network: nn.Module, data: PreparedData) -> float:
    network.eval()
    assert data.test is not None
    wrong = 0
    for chunk in torch.split(torch.arange(len(data.test_labels)), 250):
        (images,) = data.test.make_views(chunk, [None])
        answers = network(images).class_logits.argmax(dim=1)
        wrong += int((answers != data.test_labels[chunk]).sum())
    return 100 * wrong / len(data.test_labels)


def write_results(rows: list[dict[str, Any]]) -> None:
    errors = {(r["task"], r["design"], int(r["budget"])): float(r["error"]) for r in rows}
    columns = [f"{name}, {b} s" for name in TASKS.values() for b in BUDGETS]
    write_table(
        RESULTS / "networks.md",
        ["validation error in %", *columns],
        [
            [design, *(f"{errors[task, design, b]:.1f}" for task in TASKS for b in BUDGETS)]
            for design in DESIGNS
        ],
    )
    figure = Figure(figsize=(11, 3.8), layout="constrained")
    axes = figure.subplots(1, len(TASKS))
    for axis, (task, title) in zip(axes, TASKS.items(), strict=True):
        for design in DESIGNS:
            line = [errors[task, design, budget] for budget in BUDGETS]
            axis.plot(BUDGETS, line, marker="o", label=design)
        axis.set(xscale="log", xlabel="seconds of one core", xticks=BUDGETS)
        axis.set_xticklabels(map(str, BUDGETS))
        axis.minorticks_off()
        light_frame(axis, title)
    axes[0].set_ylabel("validation error in %")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.savefig(PICTURE, dpi=150)


if __name__ == "__main__":
    main()
