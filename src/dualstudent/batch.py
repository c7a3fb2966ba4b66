"""The batch of a training step, and the views that a method asks for."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from dualstudent.errors import UserError

Policy = Literal["weak", "strong"]
"""Name of a transform; ``recipe.transforms`` defines each."""


class Views(NamedTuple):
    """The views that a method asks for, each given by the name of its transform.

    Attributes:
        labeled: views of the samples drawn for their label.
        unlabeled: views of the samples drawn without a label; empty if the method uses none.

    Example:
        >>> fixmatch = Views(labeled=("weak",), unlabeled=("weak", "strong"))
        >>> len(fixmatch.unlabeled)
        2
    """

    labeled: tuple[Policy, ...]
    unlabeled: tuple[Policy, ...]

    def locate(self, number: int, rows: int, size: int) -> slice:
        """Find the rows of a batch of ``size`` samples that the ``rows`` of view ``number`` are.

        These are all of them, the first, which are unlabeled, or the last, which are labeled.

        Example:
            >>> Views(labeled=("weak", "weak"), unlabeled=("weak",)).locate(1, rows=16, size=64)
            slice(48, 64, None)
        """
        return slice(rows) if number < len(self.unlabeled) else slice(size - rows, size)


ONE_VIEW = Views(("weak",), ("weak",))
TWO_VIEWS = Views(("weak", "weak"), ("weak", "weak"))


def count_epoch_steps(labeled: int, unlabeled: int, size: int, labeled_size: int) -> int:
    """Count the steps of an epoch: complete batches of a pass over the unlabeled samples.

    Args:
        labeled: number of samples with a label.
        unlabeled: number of samples without; if there are none, an epoch goes over the labeled.
        size: samples per batch.
        labeled_size: labeled samples per batch.

    Example:
        >>> count_epoch_steps(50, 3950, size=128, labeled_size=32)
        41
    """
    return unlabeled // max(1, size - labeled_size) if unlabeled else labeled // size


@dataclass(frozen=True)
class Shard:
    """The part of every batch that one of several processes works on.

    Attributes:
        rank: number of the process, from 0.
        world_size: number of processes.

    Example:
        >>> Shard(rank=1, world_size=2).select(torch.arange(6))
        tensor([1, 3, 5])
    """

    rank: int = 0
    world_size: int = 1

    def select(self, rows: Tensor) -> Tensor:
        """Take every ``world_size``-th row, starting at ``rank``."""
        return rows[self.rank :: self.world_size]

    def make_whole(self, rows: Tensor) -> Tensor:
        """Make an empty tensor like ``rows`` for the rows of all processes."""
        if self.world_size == 1:
            return torch.empty_like(rows)
        is_image = rows.dim() == 4 and not rows.is_contiguous()
        return torch.empty(
            (len(rows) * self.world_size, *rows.shape[1:]),
            dtype=rows.dtype,
            device=rows.device,
            memory_format=torch.channels_last if is_image else torch.contiguous_format,
        )


WHOLE = Shard()


@dataclass
class Batch:
    """Views of B samples with their labels. The unlabeled samples come first.

    Attributes:
        views: tensors (rows, …) in the order in which the method asks for them. A view of all
            samples has B rows; a view of the unlabeled samples only has the first rows of the
            batch, a view of the labeled samples only has the last.
        labels: (B,) int64, the class of each sample, −1 where unknown.
        unlabeled: (B,) bool, the samples that the unsupervised terms use: those without a label,
            or all samples if the whole data set is labeled. Default: ``labels < 0``.
        indices: (B,) int64, positions of the samples in the data set. Default: 0 to B − 1.
        domains: (B,) int64, 0 for the source and 1 for the target domain. Default: all 1, as a
            single domain is the one to learn.

    Raises:
        UserError: if anything has another shape, dtype or device. Values are not looked at: a step
            on a GPU would have to wait for them.

    Example:
        >>> images = torch.rand(4, 1, 8, 8)
        >>> batch = Batch((images, images + 0.1), torch.tensor([-1, -1, 3, 7]))
        >>> len(batch), batch.unlabeled.tolist()
        (4, [True, True, False, False])
    """

    views: tuple[Tensor, ...]
    labels: Tensor
    unlabeled: Tensor = None  # type: ignore[assignment]  # defaults are set below
    indices: Tensor = None  # type: ignore[assignment]
    domains: Tensor = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self._check_column("labels", torch.int64)
        if self.unlabeled is None:
            self.unlabeled = self.labels < 0
        if self.indices is None:
            self.indices = torch.arange(len(self.labels), device=self.labels.device)
        if self.domains is None:
            self.domains = torch.ones_like(self.labels)
        self._check_column("unlabeled", torch.bool)
        self._check_column("indices", torch.int64)
        self._check_column("domains", torch.int64)
        self._check_views()

    def _check_column(self, name: str, dtype: torch.dtype) -> None:
        column, labels = getattr(self, name), self.labels
        is_column = isinstance(column, Tensor) and column.dtype == dtype and column.dim() == 1
        if not is_column or len(column) != len(labels) or column.device != labels.device:
            what = "a tensor (samples,)" if column is labels else f"{len(labels)} numbers"
            where = "" if column is labels else f" on {labels.device}, as the labels are"
            raise UserError(
                f"Batch: {name} must be {what} of {dtype}{where}, not {describe(column)}"
            )

    def _check_views(self) -> None:
        if not isinstance(self.views, tuple | list):
            raise UserError(f"Batch: views must be a tuple of tensors, not {describe(self.views)}")
        for number, view in enumerate(self.views, start=1):
            if not isinstance(view, Tensor) or view.dim() < 2 or view.device != self.labels.device:
                raise UserError(
                    f"Batch: view {number} must be a tensor (samples, …) on {self.labels.device}, "
                    f"as the labels are, not {describe(view)}"
                )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def targets(self) -> Tensor:
        """(B,) bool, the unlabeled samples of the target domain; of all if there is only one."""
        return self.unlabeled & (self.domains == 1)

    def select_unlabeled(self, number: int) -> Tensor:
        """Return view ``number`` of the unlabeled samples, in their order in the batch."""
        view = self.views[number]
        return view[self.unlabeled] if len(view) == len(self) else view


def describe(found: Any) -> str:
    """Describe what was given where a tensor of some kind was expected.

    Example:
        >>> describe(torch.zeros(2, 3)), describe([0, 1])
        ('a tensor (2, 3) of torch.float32 on cpu', 'a list')
    """
    if isinstance(found, Tensor):
        return f"a tensor {tuple(found.shape)} of {found.dtype} on {found.device}"
    return f"a {type(found).__name__}"


def mark_domains(view: Tensor, domains: Tensor) -> Tensor:
    """Add the channel that says of which domain each row is.

    Args:
        view: (B, channels, H, W), or (B, features).
        domains: (B,), 0 for the source and 1 for the target.

    Returns:
        (B, channels + 1, …), in the memory format of ``view``.

    Example:
        >>> mark_domains(torch.full((2, 1), 0.5), torch.tensor([0, 1]))
        tensor([[0.5000, 0.0000],
                [0.5000, 1.0000]])
    """
    shape = (-1, *[1] * (view.dim() - 1))
    mark = domains.to(view.dtype).reshape(shape).expand(-1, 1, *view.shape[2:])
    return torch.cat([view, mark], dim=1)


def find_targets(marked: Tensor, channels: int) -> Tensor:
    """Find the rows of the target by their last channel: (B,) bool.

    A mixture of two rows is of the domain that has the larger share in it.
    """
    return marked.detach()[:, channels:].flatten(1).mean(dim=1) >= 0.5
