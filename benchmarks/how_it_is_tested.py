"""How much of the result of an adaptation lies in how it is tested.

    python benchmarks/how_it_is_tested.py RUN [RUN …] [--out FILE.csv]

The same weights on the same test images: clean, or with the noise of training, as the authors'
program had it by mistake. And with three kinds of statistics in batch norm: those that training
left, of the noisy images it saw; of noisy images of the target; of clean ones. No label is used.
"""

import argparse
import copy
from pathlib import Path

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from dualstudent import (
    DeviceSettings,
    Draw,
    Run,
    Samples,
    Trainer,
    load_trained,
    make_generator,
    run_inference,
)
from tables import write_csv

CHUNK = 1000


def with_statistics_of(
    network: nn.Module, images: Samples, indices: torch.Tensor, noisy: bool
) -> nn.Module:
    """A copy whose batch norm knows these images, as its layers see them without dropout."""
    copied = copy.deepcopy(network).eval()
    for layer in copied.modules():
        if isinstance(layer, _BatchNorm):
            layer.reset_running_stats()
            layer.momentum = None  # the mean over all batches
            layer.train()
    with torch.no_grad():
        for start in range(0, len(indices), CHUNK):
            draw = Draw("weak", make_generator(0, "statistics", start)) if noisy else None
            copied(*images.make_views(indices[start : start + CHUNK], [draw]))
    return copied.eval()


def tested_differently(name: str, trainer: Trainer) -> list[dict[str, str]]:
    """A row for every network, kind of statistics and kind of test image; shown as they come."""
    data, rows = trainer.data, []
    for network_name, network in trainer.method.evaluated.items():
        networks = {"as trained": network} | {
            f"of {kind} target images": with_statistics_of(
                network, data.train, data.unlabeled, noisy
            )
            for kind, noisy in (("noisy", True), ("clean", False))
        }
        for statistics, tested in networks.items():
            everything = torch.arange(len(data.test_labels))
            found = list(run_inference({"": tested}, data.test, everything, 0, "cpu"))
            for kind in ("clean", "noisy"):
                views = [each.clean if kind == "clean" else each.perturbed for each in found]
                said = torch.cat([view[""].class_logits.argmax(dim=1) for view in views])
                accuracy = 100 * (said == data.test_labels).double().mean()
                row = {
                    "run": name,
                    "network": network_name,
                    "statistics": statistics,
                    "test images": kind,
                    "accuracy": f"{accuracy:.2f}",
                }
                print(*row.values(), sep=", ")
                rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--out", type=Path, default=Path("runs/how-it-is-tested.csv"))
    arguments = parser.parse_args()
    rows = []
    for folder in arguments.runs:
        trainer = load_trained(Run.open(folder), device=DeviceSettings(accelerator="cpu"))
        rows += tested_differently(folder.name, trainer)
    write_csv(arguments.out, rows)


if __name__ == "__main__":
    main()
