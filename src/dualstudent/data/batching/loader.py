"""The batch of every step: which samples, and the views of each."""

import torch
from pydantic import Field

from dualstudent.batch import TWO_VIEWS, Batch, Views
from dualstudent.data.batching.prefetch import Prefetch
from dualstudent.data.batching.readers import Role, StepReader
from dualstudent.data.batching.samplers import WHOLE, Sampler, Shard
from dualstudent.data.prepared import PreparedData
from dualstudent.errors import UserError
from dualstudent.settings import Settings


class BatchSettings(Settings):
    """What a batch is made of."""

    size: int = Field(gt=1, description="samples a step, labeled and unlabeled")
    labeled: int = Field(gt=0, description="how many of them have a label")


class BatchLoader:
    """Batches as a function of (seed, step).

    Args:
        data: the samples and what is known of them.
        settings: composition of a batch.
        seed: of the run.
        views: what the method wants to see. One that wants nothing of the unlabeled samples gets
            labeled ones in their place, so that its batch is as large and its epoch as long as
            those of the others.
        device: where batches are needed.
        shard: the part of every batch that is made here.

    Attributes:
        steps_per_epoch: one pass over the unlabeled samples, or over all if all have labels.

    Example:
        >>> from dualstudent import DataSettings, prepare
        >>> data = prepare(DataSettings(source="digits-8x8", labels=50), seed=0)
        >>> batch = BatchLoader(data, BatchSettings(size=64, labeled=16), seed=0).batch(0)
        >>> [view.shape for view in batch.views], int(batch.unlabeled.sum())
        ([torch.Size([64, 1, 8, 8]), torch.Size([64, 1, 8, 8])], 48)
    """

    def __init__(
        self,
        data: PreparedData,
        settings: BatchSettings,
        seed: int,
        views: Views = TWO_VIEWS,
        device: torch.device | str = "cpu",
        shard: Shard = WHOLE,
    ) -> None:
        _check_divides(settings, shard)
        self.steps_per_epoch = _count_steps(data, settings)
        roles, teaches = _make_roles(data, settings, seed, views)
        self._labels, self._domains = data.labels.to(device), data.domains.to(device)
        # Strided like the indices: each sampler's part is a multiple of the shards.
        self._unlabeled = shard.select(torch.tensor(teaches, device=device))
        reader = StepReader(data.train, roles, seed, device, shard)
        self._chunks = Prefetch(reader, data.train, device, limit_broken=shard.world_size == 1)

    def batch(self, step: int) -> Batch:
        """The batch of step ``step``, counted from 0 over all epochs; the unlabeled come first.

        A sample that cannot be read is replaced by another one of its kind.
        """
        chunk = self._chunks.get(step)
        indices = chunk.indices
        labels, domains = self._labels[indices], self._domains[indices]
        return Batch(tuple(chunk.views), labels, self._unlabeled, indices, domains)

    def close(self) -> None:
        """End the worker processes, if there are any; another batch would start new ones."""
        self._chunks.close()


def _make_roles(
    data: PreparedData, settings: BatchSettings, seed: int, views: Views
) -> tuple[list[Role], list[bool]]:
    """Who is in a batch, and which of its samples teach without a label."""
    if data.fully_labeled or not views.unlabeled:
        whole = data.fully_labeled
        sampler = Sampler(data.labeled, settings.size, seed, "labeled", whole)
        seen = views.unlabeled if whole and views.unlabeled else views.labeled
        return [Role(sampler, seen)], [whole] * settings.size
    rest = settings.size - settings.labeled
    unlabeled = Sampler(data.unlabeled, rest, seed, "unlabeled", whole_batches=True)
    labeled = Sampler(data.labeled, settings.labeled, seed, "labeled")
    roles = [Role(unlabeled, views.unlabeled), Role(labeled, views.labeled)]
    return roles, [True] * rest + [False] * settings.labeled


def _check_divides(settings: BatchSettings, shard: Shard) -> None:
    if settings.size % shard.world_size or settings.labeled % shard.world_size:
        raise UserError(
            f"batch.size = {settings.size} and batch.labeled = {settings.labeled} must be "
            f"multiples of device.processes = {shard.world_size}"
        )


def _count_steps(data: PreparedData, settings: BatchSettings) -> int:
    """One pass over the unlabeled samples (over all, if all have labels), in whole batches."""
    if data.fully_labeled:
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
