"""What a method learns from in one step, and what it wants to see of each sample."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Policy = Literal["weak", "strong"]
"""The names of transforms; a recipe says what they mean."""


class Views(NamedTuple):
    """The views that a method wants of each sample, by the name of their transform.

    Attributes:
        labeled: of samples that are there for their label, one name a view.
        unlabeled: of samples that teach without a label; none if the method does not use them.

    Example:
        >>> fixmatch = Views(labeled=("weak",), unlabeled=("weak", "strong"))
        >>> len(fixmatch.unlabeled)
        2
    """

    labeled: tuple[Policy, ...]
    unlabeled: tuple[Policy, ...]


ONE_VIEW = Views(("weak",), ("weak",))
TWO_VIEWS = Views(("weak", "weak"), ("weak", "weak"))


@dataclass
class Batch:
    """Views of B samples, and what is known of each sample. The unlabeled samples come first.

    Attributes:
        views: in the order in which the method asks for them. A view that it wants of all samples
            has B rows. One that it wants of the unlabeled alone has as many rows as there are of
            those, and they are the first of the batch; one of the labeled alone has the last.
        labels: (B,) int64, the class of each sample, −1 where it is unknown.
        unlabeled: (B,) bool, the samples on which the students teach each other. These are
            the ones without a label, except when every sample of the data set has one: then
            they are all of them. Default: those without a label.
        indices: (B,) int64, which samples of the data set these are. Default: 0 to B − 1.
        domains: (B,) int64, the domain of each sample: 0 for the source, 1 for the target.
            Default: all of the source.

    Example:
        >>> images = torch.rand(4, 1, 8, 8)
        >>> batch = Batch((images, images + 0.1), torch.tensor([-1, -1, 3, 7]))
        >>> len(batch), batch.unlabeled.tolist()
        (4, [True, True, False, False])
    """

    views: tuple[Tensor, ...]
    labels: Tensor
    unlabeled: Tensor = None  # type: ignore[assignment]  # filled in below, as are the next two
    indices: Tensor = None  # type: ignore[assignment]
    domains: Tensor = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.unlabeled is None:
            self.unlabeled = self.labels < 0
        if self.indices is None:
            self.indices = torch.arange(len(self.labels), device=self.labels.device)
        if self.domains is None:
            self.domains = torch.zeros_like(self.labels)

    def __len__(self) -> int:
        return len(self.labels)
