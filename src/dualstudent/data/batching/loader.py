"""Makes the batch of every step."""

from collections.abc import Callable

import torch
from pydantic import Field
from torch import Tensor

from dualstudent.batch import TWO_VIEWS, WHOLE, Batch, Policy, Shard, Views, mark_domains
from dualstudent.data.batching.prefetch import Prefetch
from dualstudent.data.batching.readers import Role, StepReader
from dualstudent.data.batching.samplers import Sampler
from dualstudent.data.packed import get_packed
from dualstudent.data.prepared import PreparedData
from dualstudent.errors import UserError
from dualstudent.settings import Settings

_REPEATED = 10  # times at most, labels of the domain that has fewer


class BatchSettings(Settings):
    """The composition of a batch."""

    size: int = Field(gt=1, description="samples per batch, labeled and unlabeled")
    labeled: int = Field(gt=0, description="labeled samples per batch")


class BatchLoader:
    """Makes batches as a function of (seed, step).

    Args:
        data: the samples and their labels.
        settings: composition of a batch.
        seed: seed of the run.
        views: the views that the method needs. If it needs no unlabeled samples, labeled ones take
            their place, so that batches and epochs have the same length for all methods. If all
            samples are labeled, each has the views of both kinds.
        device: device of the batches.
        shard: the part of every batch that this process reads.
        gather: makes the rows of the whole batch from those of all processes; default: the
            batches have the rows of the shard only.
        mark: whether views have the channel of :func:`~dualstudent.batch.mark_domains`.

    Attributes:
        steps_per_epoch: length of a pass over the unlabeled samples, or over all samples if all
            are labeled.

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
        gather: Callable[[Tensor], Tensor] | None = None,
        mark: bool = False,
    ) -> None:
        check_divides(settings, shard.world_size)
        self.steps_per_epoch = _count_steps(data, settings)
        roles, teaches = _make_roles(data, settings, seed, views)
        self._mark, self._views = mark, views
        self._labels = get_packed(data, "labels").to(device)
        self._is_target = None if data.is_target is None else data.is_target.to(device)
        unlabeled = torch.tensor(teaches, device=device)
        # Sharded like the indices: the parts of both samplers are multiples of the world size.
        self._unlabeled = unlabeled if gather else shard.select(unlabeled)
        self._gather = gather
        reader = StepReader(data.train, roles, seed, device, shard)
        self._chunks = Prefetch(reader, data.train, device, limit_broken=shard.world_size == 1)

    def batch(self, step: int) -> Batch:
        """Return the batch of step ``step``, counted from 0 over all epochs.

        A sample that cannot be read is replaced by another, labeled or unlabeled like itself.
        """
        chunk = self._chunks.get(step)
        indices, views = chunk.indices, chunk.views
        if self._gather is not None:
            indices, views = self._gather(indices), [self._gather(view) for view in views]
        labels = self._labels[indices]
        domains = torch.ones_like(labels)
        if self._is_target is not None:
            domains = self._is_target[indices].long()
        if self._mark:
            views = [
                mark_domains(view, domains[self._views.locate(number, len(view), len(domains))])
                for number, view in enumerate(views)
            ]
        return Batch(tuple(views), labels, self._unlabeled, indices, domains)

    def close(self) -> None:
        """Stop the worker processes, if any; the next batch would start new ones."""
        self._chunks.close()


def _make_roles(
    data: PreparedData, settings: BatchSettings, seed: int, views: Views
) -> tuple[list[Role], list[bool]]:
    """Return the parts of a batch, and for each of its samples whether it counts as unlabeled."""
    if data.fully_labeled or not views.unlabeled:
        whole = data.fully_labeled
        sampler = Sampler(get_packed(data, "labeled"), settings.size, seed, "labeled", whole)
        return [Role(sampler, _join_views(views))], [whole] * settings.size
    rest = settings.size - settings.labeled
    unlabeled = Sampler(get_packed(data, "unlabeled"), rest, seed, "unlabeled", True)
    labeled = Sampler(_list_labeled(data), settings.labeled, seed, "labeled")
    roles = [Role(unlabeled, views.unlabeled), Role(labeled, views.labeled)]
    return roles, [True] * rest + [False] * settings.labeled


def _list_labeled(data: PreparedData) -> Tensor:
    """Return the labeled samples; if both domains have some, the fewer ones are repeated.

    Otherwise a few labels of the target would hardly ever be drawn beside thousands of the source;
    drawn as often as those, they would be learned by heart.
    """
    if data.is_target is None:
        return data.labeled
    of_target = data.is_target[data.labeled]
    fewer, more = sorted((data.labeled[~of_target], data.labeled[of_target]), key=len)
    if len(fewer) == 0:
        return data.labeled
    return torch.cat([more, fewer.repeat(min(len(more) // len(fewer), _REPEATED))])


def _join_views(views: Views) -> tuple[Policy, ...]:
    """Return the views of samples that are labeled and unlabeled at once."""
    fewer, more = sorted(views, key=len)
    if more[: len(fewer)] != fewer:
        raise UserError(
            f"every sample has a label, but the method asks for other views of labeled samples, "
            f"{views.labeled}, than of unlabeled ones, {views.unlabeled}; hide some labels, or "
            "let the views of one begin with those of the other"
        )
    return more


def check_divides(settings: BatchSettings, processes: int) -> None:
    """Check that so many processes can share each batch equally.

    Raises:
        UserError: otherwise.
    """
    if settings.size % processes or settings.labeled % processes:
        raise UserError(
            f"{processes} processes share each batch, so batch.size = {settings.size} and "
            f"batch.labeled = {settings.labeled} must be multiples of {processes}"
        )


def _count_steps(data: PreparedData, settings: BatchSettings) -> int:
    """Count the complete batches of a pass over the unlabeled samples, or over all if labeled."""
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
