"""What trained networks say about samples."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn

from dualstudent.calibration import PredictedSet
from dualstudent.data.batching.prefetch import Prefetch
from dualstudent.data.batching.readers import ChunkReader
from dualstudent.data.samples import Samples
from dualstudent.data.transforms.policy import Draw
from dualstudent.generators import make_generator
from dualstudent.methods import Method
from dualstudent.stability import instability, is_stable
from dualstudent.training.evaluation import CHUNK, evaluation_mode


def probabilities(network: nn.Module, samples: Samples, perturbed_by: int | None = None) -> Tensor:
    """What the class head says, in evaluation mode.

    Args:
        network: where it is, and to its precision, the samples are brought.
        samples: N of them.
        perturbed_by: a seed for one perturbed view of each; default: the clean samples.

    Returns:
        (N, C) float64 on the CPU.
    """
    weight = next(network.parameters())
    device = weight.device
    samples, answers = samples.to(device), []
    with evaluation_mode(network):
        for start in range(0, len(samples), CHUNK):
            indices = torch.arange(start, min(start + CHUNK, len(samples)))
            draw: Draw | None = None
            if perturbed_by is not None:
                draw = Draw("weak", make_generator(perturbed_by, "test view", start, device=device))
            (view,) = samples.views(indices, [draw])
            answers.append(
                network(view.to(weight.dtype)).class_logits.cpu().double().softmax(dim=1)
            )
        return torch.cat(answers)


@dataclass(frozen=True)
class Answers:
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
            moved its answer.
    """

    indices: Tensor
    probabilities: Tensor
    stable: Tensor
    stable_for_all: Tensor
    agree: Tensor
    labels: Tensor
    instability: Tensor

    @staticmethod
    def joined(pieces: "Iterable[Answers]") -> "Answers":
        """The answers to all pieces, one after the other; at least one is needed."""
        columns = [field.name for field in fields(Answers)]
        rows = [[getattr(each, column) for column in columns] for each in pieces]
        return Answers(*(torch.cat(column) for column in zip(*rows, strict=True)))

    def beside(self, labels: Tensor) -> PredictedSet:
        """With the truth: ``labels`` (N,) int64 of all samples that were asked about."""
        truth = labels.cpu()[self.indices]
        return PredictedSet(self.probabilities, truth, self.stable, self.agree)


def answers(
    method: Method, samples: Samples, indices: Tensor, seed: int, device: torch.device | str
) -> Iterator[Answers]:
    """Ask the networks of ``method`` about samples, chunk by chunk, in bounded memory.

    On the test set of a run and with its seed, these are the answers behind its figures.

    Args:
        method: trained, on ``device``.
        samples: of which to take some.
        indices: (N,) int64, which.
        seed: decides the perturbed view of each.
        device: where the networks are.
    """
    look, chunks = (
        ChunkReader(samples, indices, CHUNK, seed, device),
        math.ceil(len(indices) / CHUNK),
    )
    with Prefetch(look, samples, device, end=chunks) as looks:
        for seen in map(looks.get, range(chunks)):
            clean, perturbed = seen.views
            yield answer(method, seen.indices, clean, perturbed)


def answer(method: Method, indices: Tensor, clean: Tensor, perturbed: Tensor) -> Answers:
    """What the networks say of two views of the samples at ``indices``."""
    networks = {name: method.evaluated[name] for name in (*method.headline, method.exported)}
    probabilities, stable, moved = {}, {}, {}
    with evaluation_mode(*networks.values()):
        for name, network in networks.items():
            p, p_perturbed = (network(v).class_logits.softmax(dim=1) for v in (clean, perturbed))
            probabilities[name] = p
            stable[name] = is_stable(p, p_perturbed, method.confidence_threshold)
            moved[name] = instability(p, p_perturbed)
        labels = torch.stack([probabilities[name].argmax(dim=1) for name in method.headline])
        return Answers(
            indices.cpu(),
            probabilities[method.exported].cpu(),
            stable[method.exported].cpu(),
            torch.stack([stable[name] for name in method.headline]).all(dim=0).cpu(),
            (labels == labels[0]).all(dim=0).cpu(),
            labels.T.cpu(),
            moved[method.exported].cpu(),
        )
