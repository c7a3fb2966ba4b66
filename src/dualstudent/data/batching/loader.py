"""The batch of every step: which samples, and two views of each."""

import torch
from pydantic import Field

from dualstudent.batch import Batch
from dualstudent.data.batching.looks import StepLook
from dualstudent.data.batching.prefetch import Prefetch
from dualstudent.data.batching.samplers import WHOLE, Share, Stream
from dualstudent.data.prepared import PreparedData
from dualstudent.errors import UserError
from dualstudent.settings import Settings


class BatchSettings(Settings):
    """What a batch is made of."""

    size: int = Field(gt=1, description="samples a step, labeled and unlabeled")
    labeled: int = Field(gt=0, description="how many of them have a label")


class Batches:
    """Batches as a function of (seed, step).

    Args:
        data: the samples and what is known of them.
        settings: composition of a batch.
        seed: of the run.
        views: 2, or 1 for methods that look at one view only (then both are the same tensor).
        with_unlabeled: false for methods that learn from labels only; their batch is as large
            and their epoch as long as those of the others.
        device: where batches are needed.
        share: the part of every batch that is made here.
    """

    def __init__(
        self,
        data: PreparedData,
        settings: BatchSettings,
        seed: int,
        views: int = 2,
        with_unlabeled: bool = True,
        device: torch.device | str = "cpu",
        share: Share = WHOLE,
    ) -> None:
        _check_shares(settings, share)
        self.steps_per_epoch = _steps_per_epoch(data, settings)
        if data.everything_labeled or not with_unlabeled:
            whole = data.everything_labeled
            streams = [Stream(data.labeled, settings.size, seed, "labeled", whole)]
            teaches = [data.everything_labeled] * settings.size
        else:
            rest = settings.size - settings.labeled
            streams = [
                Stream(data.unlabeled, rest, seed, "unlabeled", whole_batches=True),
                Stream(data.labeled, settings.labeled, seed, "labeled"),
            ]
            teaches = [True] * rest + [False] * settings.labeled
        self._labels = data.labels.to(device)
        # Strided like the indices: each stream's part is a multiple of the shares.
        self._unlabeled = share.of(torch.tensor(teaches, device=device))
        look = StepLook(data.train, streams, seed, views, device, share)
        self._looks = Prefetch(look, data.train, device, refuses=share.count == 1)

    def at(self, step: int) -> Batch:
        """The batch of step ``step``, counted from 0 over all epochs; the unlabeled come first.

        A sample that cannot be read is replaced by another one of its kind.
        """
        look = self._looks.at(step)
        labels = self._labels[look.indices]
        return Batch(look.views[0], look.views[-1], labels, self._unlabeled, look.indices)

    def close(self) -> None:
        """End the worker processes, if there are any; another batch would start new ones."""
        self._looks.close()


def _check_shares(settings: BatchSettings, share: Share) -> None:
    if settings.size % share.count or settings.labeled % share.count:
        raise UserError(
            f"batch.size = {settings.size} and batch.labeled = {settings.labeled} must be "
            f"multiples of device.processes = {share.count}"
        )


def _steps_per_epoch(data: PreparedData, settings: BatchSettings) -> int:
    """One pass over the unlabeled samples (over all, if all have labels), in whole batches."""
    if data.everything_labeled:
        if settings.labeled != settings.size:
            raise UserError(
                f"every sample has a label, so batch.labeled = {settings.labeled} must be "
                f"batch.size = {settings.size}"
            )
        count, size, what = len(data.labeled), settings.size, "batch.size"
    else:
        count, size = len(data.unlabeled), settings.size - settings.labeled
        what = "batch.size − batch.labeled"
        if size <= 0:
            raise UserError(
                f"batch.labeled = {settings.labeled} leaves no room for unlabeled samples in "
                f"batch.size = {settings.size}"
            )
    if count < size:
        raise UserError(f"{what} = {size} is more than the {count} samples of an epoch")
    return count // size
