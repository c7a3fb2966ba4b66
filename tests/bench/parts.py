"""What a step of Mean Teacher does beside its network passes, in microseconds.

    OMP_NUM_THREADS=1 python -m tests.bench.parts

Each part alone, one thread, CPU time, median of 200.
"""

import time
import warnings
from collections.abc import Callable
from itertools import count
from statistics import median

import torch

from dualstudent import ImageSamples, load_recipe, make_generator
from dualstudent.data.transforms.geometry import translate_and_flip
from dualstudent.data.transforms.normalization import normalize
from dualstudent.data.transforms.policy import add_noise
from dualstudent.errors import NotKeptWarning
from dualstudent.generators import seed_rng
from dualstudent.methods.consistency import ConsistencySettings, consistency_terms
from dualstudent.prediction import Prediction
from tests.bench.ratios import METHODS, NETWORKS, Steps, measure


def list_parts(steps: Steps) -> dict[str, Callable[[], object]]:
    trainer, numbers = steps.trainer, count()
    loader, method, samples = trainer._loader, trainer.method, trainer.data.train
    assert isinstance(samples, ImageSamples)
    assert isinstance(method.settings, ConsistencySettings)
    batch, settings, weak = loader.batch(0), method.settings, samples.transforms.weak
    pixels, generator = samples.read_pixels(batch.indices), make_generator(0)
    shift = weak.draw(len(pixels), generator)["translate"]
    images = normalize(pixels, samples.normalization)
    shape = len(pixels), len(trainer.data.classes)
    heads = [torch.rand(shape, requires_grad=True) for _ in range(2)]
    prediction = Prediction(heads[0], heads[1], torch.rand(shape))
    target = torch.rand(shape).softmax(dim=1)

    def losses() -> None:
        terms = consistency_terms(prediction, target, batch.labels, settings, ramp=0.5)
        torch.autograd.grad(sum(terms.values(), torch.zeros(())), heads)

    return {
        "a whole batch of two views": lambda: loader.batch(next(numbers)),
        "reading its pixels": lambda: samples.read_pixels(batch.indices),
        "shift of a view": lambda: translate_and_flip(pixels, shift, None),
        "normalization of a view": lambda: normalize(pixels, samples.normalization),
        "noise of a view": lambda: add_noise(images, weak.noise, generator),
        "losses and their gradient": losses,
        "the teacher's average": lambda: method.after_step(0),
        "the global random state": lambda: seed_rng(0, "step", 0),
    }


def main() -> None:
    warnings.simplefilter("ignore", NotKeptWarning)  # methods have their own weights
    torch.set_num_threads(1)
    for network, (changes, _) in NETWORKS.items():
        print(network)
        steps = Steps(load_recipe("digits", [*changes, *METHODS["Mean Teacher"]]))
        for name, work in list_parts(steps).items():
            seconds = median(measure(work, time.process_time) for _ in range(200))
            print(f"    {name:<30}{1e6 * seconds:8.0f}")


if __name__ == "__main__":
    main()
