"""How much of the result of finished runs lies in how they are tested.

    python benchmarks/how_it_is_tested.py RUN [RUN …]

The same weights on the same test images: clean, or with the noise of training, as the authors'
program had it by mistake; and with the statistics of batch norm that training left, of noisy images
of source and target, or with those of clean images of the target, which need no labels.
"""

import argparse
import copy
from pathlib import Path

import torch
from torch import nn

from dualstudent import Run
from dualstudent.data.samples import Samples
from dualstudent.randomness import generator_for
from dualstudent.training.evaluation import evaluation_mode
from dualstudent.training.model import load_trained

CHUNK = 1000
SEEN = 10_000  # images are enough for 80 means and variances


def accuracy(network: nn.Module, images: Samples, labels: torch.Tensor, noisy: bool) -> float:
    correct = 0
    with evaluation_mode(network):
        for positions in torch.arange(len(labels)).split(CHUNK):
            noise = generator_for(0, "noise at test", int(positions[0])) if noisy else None
            (views,) = images.views(positions, [noise])
            answers = network(views).class_logits.argmax(dim=1)
            correct += int((answers == labels[positions]).sum())
    return 100 * correct / len(labels)


def with_clean_statistics(
    network: nn.Module, images: Samples, positions: torch.Tensor
) -> nn.Module:
    """A copy whose batch norm knows clean images, as the layers see them without dropout."""
    copied = copy.deepcopy(network).eval()
    for layer in copied.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.reset_running_stats()
            layer.momentum = None  # the mean over all batches
            layer.train()
    with torch.no_grad():
        for some in positions.split(CHUNK):
            copied(*images.views(some, [None]))
    return copied


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    for folder in parser.parse_args().runs:
        training = load_trained(Run.open(folder))
        data = training.data
        for name, network in training.method.evaluated.items():
            clean = with_clean_statistics(network, data.train, data.unlabeled[:SEEN])
            for statistics, tested in (("as trained", network), ("of clean images", clean)):
                for noisy in (False, True):
                    figure = accuracy(tested, data.test, data.test_labels, noisy)
                    images = "noisy" if noisy else "clean"
                    print(f"{folder.name}, {name}, statistics {statistics}, {images}: {figure:.2f}")


if __name__ == "__main__":
    main()
