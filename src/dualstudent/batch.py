"""What a method learns from in one step."""

from dataclasses import dataclass

from torch import Tensor


@dataclass
class Batch:
    """Two perturbed views of the same B samples.

    Attributes:
        view1: (B, …), the samples under one perturbation (𝓑₁ in Algorithm 1).
        view2: (B, …), the same samples under another, independent one (𝓑₂).
        labels: (B,) int64, the class of each sample, −1 where it is unknown.
        unlabeled: (B,) bool, the samples on which the students teach each other. These are
            the ones without a label, except when every sample of the data set has one: then
            they are all of them.
        indices: (B,) int64, where each sample stands in the data set.

    Example:
        >>> import torch
        >>> images, labels = torch.rand(4, 1, 8, 8), torch.tensor([-1, -1, 3, 7])
        >>> batch = Batch(images, images, labels, labels < 0, torch.arange(4))
        >>> len(batch)
        4
    """

    view1: Tensor
    view2: Tensor
    labels: Tensor
    unlabeled: Tensor
    indices: Tensor

    def __len__(self) -> int:
        return len(self.labels)
