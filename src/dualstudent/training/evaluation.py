"""How good a network is, and how far its stable predictions can be trusted."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dualstudent.data.augment import Augmentation, Normalisation, normalised, perturbed
from dualstudent.data.images import Images
from dualstudent.randomness import generator_for
from dualstudent.stability import is_stable

_CHUNK = 250  # bounds memory: CNN13 makes half a megabyte an image and layer


@dataclass(frozen=True)
class Evaluation:
    """Figures of one network on one labeled set, all in percent.

    Attributes:
        error: of the clean images.
        stable_share: how many images are stable samples for the network.
        stable_accuracy: on those alone; None if there are none.
    """

    error: float
    stable_share: float
    stable_accuracy: float | None


@contextmanager
def evaluation_mode(network: nn.Module) -> Iterator[None]:
    """Without gradient, dropout and batch statistics; the network's mode is restored after."""
    was_training = network.training
    network.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        network.train(was_training)


class Evaluator:
    """Evaluates networks on the same test images and the same perturbations every time.

    At test time x is the clean image and x̄ one perturbed view of it.

    Args:
        images: the test set; moved to ``device`` as bytes, once.
        augmentation: what perturbs x̄.
        normalisation: of the pixel values.
        threshold: the ξ of Eq. 3.
        seed: decides the perturbations.
        device: where networks live.
    """

    def __init__(
        self,
        images: Images,
        augmentation: Augmentation,
        normalisation: Normalisation,
        threshold: float,
        seed: int,
        device: torch.device | str = "cpu",
    ) -> None:
        self._pixels, self._labels = images.pixels.to(device), images.labels.to(device)
        self._augmentation, self._normalisation = augmentation, normalisation
        self._threshold, self._seed, self._device = threshold, seed, device

    def evaluate(self, network: nn.Module) -> Evaluation:
        """Error and stability of one network."""
        with evaluation_mode(network):
            pieces = [self._judge(network, start) for start in range(0, len(self._labels), _CHUNK)]
        correct, stable = (torch.cat(column) for column in zip(*pieces, strict=True))
        total, stable_total = len(stable), int(stable.sum())
        wrong, stable_correct = int((~correct).sum()), int((correct & stable).sum())
        return Evaluation(
            error=100 * wrong / total,
            stable_share=100 * stable_total / total,
            stable_accuracy=100 * stable_correct / stable_total if stable_total else None,
        )

    def _judge(self, network: nn.Module, start: int) -> tuple[Tensor, Tensor]:
        """For one chunk: (n,) bool correct, (n,) bool stable."""
        labels = self._labels[start : start + _CHUNK]
        positions = torch.arange(start, start + len(labels), device=self._device)
        clean = normalised(self._pixels[positions], self._normalisation)
        generator = generator_for(self._seed, "test view", start, device=self._device)
        noisy = perturbed(
            self._pixels, positions, self._augmentation, self._normalisation, generator
        )
        p = network(clean).class_logits.softmax(dim=1)
        p_perturbed = network(noisy).class_logits.softmax(dim=1)
        return p.argmax(dim=1) == labels, is_stable(p, p_perturbed, self._threshold)
