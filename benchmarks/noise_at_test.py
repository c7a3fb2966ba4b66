"""What noise at test time does to finished runs, as the authors' program had it by mistake.

python benchmarks/noise_at_test.py RUN [RUN …]
"""

import argparse
from pathlib import Path

import torch

from dualstudent import Run
from dualstudent.randomness import generator_for
from dualstudent.training.evaluation import evaluation_mode
from dualstudent.training.model import load_trained

CHUNK = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    for folder in parser.parse_args().runs:
        training = load_trained(Run.open(folder))
        recipe, test, labels = training.recipe, training.data.test, training.data.test_labels
        for name, network in training.method.evaluated.items():
            for noisy in (False, True):
                correct = 0
                with evaluation_mode(network):
                    for start in range(0, len(test), CHUNK):
                        positions = torch.arange(start, min(start + CHUNK, len(test)))
                        generator = generator_for(recipe.seed, "noise at test", start)
                        (images,) = test.views(positions, [generator if noisy else None])
                        answers = network(images).class_logits.argmax(dim=1)
                        correct += int((answers == labels[positions]).sum())
                print(f"{folder.name}, {name}, noise {noisy}: {100 * correct / len(test):.2f} %")


if __name__ == "__main__":
    main()
