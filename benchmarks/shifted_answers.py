"""How often a trained network changes its answer when an image is shifted or mirrored.

    python benchmarks/shifted_answers.py RUN [--out FILE.csv]

What consistency asks of a network, as far as it can give it. The last network of a run, all test
images without noise, shifts with reflected borders, as in training.
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from dualstudent import DeviceSettings, Run, load_trained
from tables import write_csv

CHUNK = 1000


def shifted(images: Tensor, pixels: int) -> Tensor:
    """Down and to the right."""
    height, width = images.shape[-2:]
    return F.pad(images, [pixels, 0, pixels, 0], mode="reflect")[..., :height, :width]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--out", type=Path, default=Path("runs/shifted-answers.csv"))
    arguments = parser.parse_args()
    run = Run.open(arguments.run)
    training = load_trained(run, device=DeviceSettings(accelerator="cpu"))
    network, test = list(training.method.evaluated.values())[-1].eval(), training.data.test
    changed = {"mirrored": 0} | {f"shifted by {pixels}": 0 for pixels in (1, 2, 4)}
    with torch.inference_mode():
        for start in range(0, len(test), CHUNK):
            (images,) = test.make_views(torch.arange(start, min(start + CHUNK, len(test))), [None])
            answers = network(images).class_logits.argmax(dim=1)
            others = [images.flip(3), *(shifted(images, pixels) for pixels in (1, 2, 4))]
            for name, other in zip(changed, others, strict=True):
                changed[name] += int((network(other).class_logits.argmax(dim=1) != answers).sum())
    rows = [
        {"run": run.folder.name, "images": name, "% of answers changed": 100 * number / len(test)}
        for name, number in changed.items()
    ]
    for row in rows:
        print(*row.values(), sep=", ")
    write_csv(arguments.out, rows)


if __name__ == "__main__":
    main()
