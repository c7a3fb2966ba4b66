"""The one inference loop: from samples to what trained networks make of them."""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn

from dualstudent.calibration.predicted import PredictedSet
from dualstudent.data.batching.prefetch import Prefetch
from dualstudent.data.batching.readers import ChunkReader
from dualstudent.data.samples import Samples
from dualstudent.methods import Method
from dualstudent.prediction import Prediction
from dualstudent.stability import instability, is_stable

CHUNK = 250  # bounds memory: CNN13 makes half a megabyte an image and layer


@contextmanager
def evaluation_mode(*networks: nn.Module) -> Iterator[None]:
    """Without gradient, dropout and batch statistics; the networks' modes are restored after."""
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
    """What some networks make of n samples, on their device.

    Attributes:
        indices: (n,) int64, which samples; those that cannot be read are missing.
        clean: name of the network → its outputs for the clean samples.
        perturbed: the same for one weak view of each; empty if only clean samples were wanted.
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
) -> Iterator[Outputs]:
    """Show samples to networks in evaluation mode, chunk by chunk, in bounded memory.

    Args:
        networks: on ``device``; each sees the samples in its own precision.
        samples: of which to take some.
        indices: (N,) int64, which.
        seed: decides the perturbed view of each; None for clean samples alone.
        device: where the networks are.

    Example:
        >>> from dualstudent import DigitsCNN, prepare_arrays
        >>> test = prepare_arrays(torch.zeros(6, 28, 28), [0, 1, 2, -1, -1, -1]).train
        >>> (found,) = run_inference({"a": DigitsCNN()}, test, torch.arange(6), None, "cpu")
        >>> found.clean["a"].class_logits.shape
        torch.Size([6, 10])
    """
    reader, chunks = (
        ChunkReader(samples, indices, CHUNK, seed, device),
        math.ceil(len(indices) / CHUNK),
    )
    with Prefetch(reader, samples, device, end=chunks) as prefetch:
        for number in range(chunks):
            chunk = prefetch.get(number)
            with evaluation_mode(*networks.values()):
                seen = [_run_networks(view, networks) for view in chunk.views]
            yield Outputs(chunk.indices, seen[0], seen[1] if len(seen) > 1 else {})


def _run_networks(view: Tensor, networks: Mapping[str, nn.Module]) -> dict[str, Prediction]:
    return {
        name: network(view.to(next(network.parameters()).dtype))
        for name, network in networks.items()
    }


@dataclass(frozen=True)
class Predictions:
    """What the networks of a method say about n samples, C classes; on the CPU.

    Attributes:
        indices: (n,) int64, which samples; those that cannot be read are missing.
        probabilities: (n, C), of each class, by the network that the method exports.
        stable: (n,) bool, whether a sample is stable for that network (Eq. 3): clean sample and
            one perturbed view.
        stable_for_all: (n,) bool, whether it is for every headline network of the method.
        agree: (n,) bool, whether all headline networks say the same class.
        labels: (n, S) int64, the class that each of the S headline networks says, in their order.
        instability: (n,), the ℰ of Eq. 4 for the exported network: how far the perturbed view
            moved its prediction.
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
        """The predictions of all pieces, one after the other; at least one is needed."""
        columns = [field.name for field in fields(Predictions)]
        rows = [[getattr(each, column) for column in columns] for each in pieces]
        return Predictions(*(torch.cat(column) for column in zip(*rows, strict=True)))

    def add_truth(self, labels: Tensor) -> PredictedSet:
        """Beside the truth: ``labels`` (N,) int64 of all samples that were asked about."""
        truth = labels.cpu()[self.indices]
        return PredictedSet(self.probabilities, truth, self.stable, self.agree)


def predict(
    method: Method, samples: Samples, indices: Tensor, seed: int, device: torch.device | str
) -> Iterator[Predictions]:
    """What the networks of ``method`` say about samples, chunk by chunk, in bounded memory.

    On the test set of a run and with its seed, these are the predictions behind its figures.

    Args:
        method: trained, on ``device``.
        samples: of which to take some.
        indices: (N,) int64, which.
        seed: decides the perturbed view of each.
        device: where the networks are.
    """
    names = dict.fromkeys((*method.headline, method.exported))
    networks = {name: method.evaluated[name] for name in names}
    for outputs in run_inference(networks, samples, indices, seed, device):
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
