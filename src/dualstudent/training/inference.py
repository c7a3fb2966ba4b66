"""The inference loop, used by evaluation, prediction, reports and export."""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn

from dualstudent.batch import mark_domains
from dualstudent.calibration.predicted import PredictedSet
from dualstudent.data.batching.prefetch import Prefetch
from dualstudent.data.batching.readers import ChunkReader
from dualstudent.data.samples import Samples
from dualstudent.methods import Method
from dualstudent.prediction import Prediction
from dualstudent.stability import instability, is_stable
from dualstudent.trunks.samples import ComputedFeatures

CHUNK = 250  # limits memory: CNN13 needs half a megabyte per image and layer
_LARGE = 256  # of images with more pixels a side, fewer at once


@contextmanager
def evaluation_mode(*networks: nn.Module) -> Iterator[None]:
    """Run the block in evaluation and inference mode; restore the networks' modes afterwards."""
    modes = [network.training for network in networks]
    for network in networks:
        network.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        for network, was_training in zip(networks, modes, strict=True):
            network.train(was_training)


@dataclass(frozen=True)
class Outputs:
    """Outputs of some networks for n samples, on their device.

    Attributes:
        indices: (n,) int64, the samples; without those that cannot be read.
        clean: name of the network → outputs for the clean samples.
        perturbed: name of the network → outputs for a weak view; empty without a seed.
    """

    indices: Tensor
    clean: dict[str, Prediction]
    perturbed: dict[str, Prediction]


def run_inference(
    networks: Mapping[str, nn.Module],
    samples: Samples,
    indices: Tensor,
    seed: int | None,
    device: torch.device | str,
    of_source: bool = False,
) -> Iterator[Outputs]:
    """Run networks in evaluation mode on samples, chunk by chunk, in bounded memory.

    Args:
        networks: networks on ``device``; each gets the samples in its own precision.
        samples: a set of samples.
        indices: (N,) int64, the samples to use.
        seed: seed of the weak views; None for clean samples only.
        device: device of the networks.
        of_source: tell networks with batch norm by domain that all samples are of the source.

    Example:
        >>> from dualstudent import DigitsCNN, prepare_arrays
        >>> test = prepare_arrays(torch.zeros(6, 28, 28), [0, 1, 2, -1, -1, -1]).train
        >>> (found,) = run_inference({"a": DigitsCNN()}, test, torch.arange(6), None, "cpu")
        >>> found.clean["a"].class_logits.shape
        torch.Size([6, 10])
    """
    read = samples.images if isinstance(samples, ComputedFeatures) else samples
    pixels = math.prod(read.shape[1:])
    size = min(CHUNK, max(1, CHUNK * _LARGE**2 // pixels))
    reader = ChunkReader(samples, indices, size, seed, device)
    chunks = math.ceil(len(indices) / size)
    with Prefetch(reader, samples, device, end=chunks) as prefetch:
        for number in range(chunks):
            chunk = prefetch.get(number)
            with evaluation_mode(*networks.values()):
                seen = [_run_networks(view, networks, of_source) for view in chunk.views]
            yield Outputs(chunk.indices, seen[0], seen[1] if len(seen) > 1 else {})


def _run_networks(
    view: Tensor, networks: Mapping[str, nn.Module], of_source: bool
) -> dict[str, Prediction]:
    if of_source:
        view = mark_domains(view, torch.zeros(len(view), device=view.device))
    return {
        name: network(view.to(next(network.parameters()).dtype))
        for name, network in networks.items()
    }


@dataclass(frozen=True)
class Predictions:
    """Predictions of a method for n samples and C classes, on the CPU.

    Attributes:
        indices: (n,) int64, the samples; without those that cannot be read.
        probabilities: (n, C), class probabilities of the exported network.
        stable: (n,) bool, whether the sample is stable for that network (Eq. 3), with the clean
            sample as x and a weak view as x̄.
        stable_for_all: (n,) bool, whether it is stable for every headline network.
        agree: (n,) bool, whether all headline networks predict the same class.
        labels: (n, S) int64, the class that each of the S headline networks predicts.
        instability: (n,), ℰ of Eq. 4 for the exported network.
    """

    indices: Tensor
    probabilities: Tensor
    stable: Tensor
    stable_for_all: Tensor
    agree: Tensor
    labels: Tensor
    instability: Tensor

    @staticmethod
    def join(pieces: "Iterable[Predictions]") -> "Predictions":
        """Concatenate the predictions of one or more pieces."""
        columns = [field.name for field in fields(Predictions)]
        rows = [[getattr(each, column) for column in columns] for each in pieces]
        return Predictions(*(torch.cat(column) for column in zip(*rows, strict=True)))

    def add_truth(self, labels: Tensor) -> PredictedSet:
        """Combine with the true labels (N,) int64 of all samples of the set."""
        truth = labels.cpu()[self.indices]
        return PredictedSet(self.probabilities, truth, self.stable, self.agree)


def predict(
    method: Method,
    samples: Samples,
    indices: Tensor,
    seed: int,
    device: torch.device | str,
    of_source: bool = False,
) -> Iterator[Predictions]:
    """Predict samples with the networks of ``method``, chunk by chunk, in bounded memory.

    With the test set and the seed of a run, these are the predictions of its evaluation.

    Args:
        method: a trained method on ``device``.
        samples: a set of samples.
        indices: (N,) int64, the samples to use.
        seed: seed of the weak views.
        device: device of the networks.
        of_source: tell networks with batch norm by domain that all samples are of the source.
    """
    names = dict.fromkeys((*method.headline, method.exported))
    networks = {name: method.evaluated[name] for name in names}
    for outputs in run_inference(networks, samples, indices, seed, device, of_source):
        yield _combine(method, outputs)


def _combine(method: Method, outputs: Outputs) -> Predictions:
    clean, perturbed = (
        {name: each.class_logits.softmax(dim=1) for name, each in view.items()}
        for view in (outputs.clean, outputs.perturbed)
    )
    stable = {
        name: is_stable(p, perturbed[name], method.confidence_threshold)
        for name, p in clean.items()
    }
    labels = torch.stack([clean[name].argmax(dim=1) for name in method.headline])
    exported = method.exported
    return Predictions(
        outputs.indices.cpu(),
        clean[exported].cpu(),
        stable[exported].cpu(),
        torch.stack([stable[name] for name in method.headline]).all(dim=0).cpu(),
        (labels == labels[0]).all(dim=0).cpu(),
        labels.T.cpu(),
        instability(clean[exported], perturbed[exported]).cpu(),
    )
