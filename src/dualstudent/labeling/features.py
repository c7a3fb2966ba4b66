"""What the exported network of a run makes of images, before it decides on a class."""

import math

import torch
from torch import Tensor

from dualstudent.data.batching.prefetch import Prefetch
from dualstudent.data.batching.readers import ChunkReader
from dualstudent.training.evaluation import CHUNK, evaluation_mode
from dualstudent.training.training import Training


def extract_features(training: Training, indices: Tensor) -> Tensor:
    """(n, D) on the CPU, of the clean training samples at ``indices``.

    Those that cannot be read are missing. All are held at once: ask for thousands, not millions.
    """
    network = training.method.evaluated[training.method.exported]
    samples, device = training.data.train, training.fabric.device
    look = ChunkReader(samples, indices, CHUNK, training.recipe.seed, device)
    chunks = math.ceil(len(indices) / CHUNK)
    with Prefetch(look, samples, device, end=chunks) as looks, evaluation_mode(network):
        found = [network(looks.get(number).views[0]).features.cpu() for number in range(chunks)]
    return torch.cat(found)
