"""The batch of every step: which samples, and two views of each."""

import torch
from pydantic import Field

from dualstudent.batch import Batch
from dualstudent.data.prepare import PreparedData
from dualstudent.data.streams import Stream
from dualstudent.errors import UserError
from dualstudent.randomness import generator_for
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
        device: where batches are made.
    """

    def __init__(
        self,
        data: PreparedData,
        settings: BatchSettings,
        seed: int,
        views: int = 2,
        with_unlabeled: bool = True,
        device: torch.device | str = "cpu",
    ) -> None:
        self._samples, self._labels = data.train.to(device), data.labels.to(device)
        self._seed, self._views, self._device = seed, views, device
        self.steps_per_epoch = _steps_per_epoch(data, settings)
        if data.everything_labeled or not with_unlabeled:
            whole = data.everything_labeled
            self._streams = [Stream(data.labeled, settings.size, seed, "labeled", whole)]
            teaches = [data.everything_labeled] * settings.size
        else:
            rest = settings.size - settings.labeled
            self._streams = [
                Stream(data.unlabeled, rest, seed, "unlabeled", whole_batches=True),
                Stream(data.labeled, settings.labeled, seed, "labeled"),
            ]
            teaches = [True] * rest + [False] * settings.labeled
        self._unlabeled = torch.tensor(teaches, device=device)

    def at(self, step: int) -> Batch:
        """The batch of step ``step``, counted from 0 over all epochs; the unlabeled come first."""
        positions = torch.cat([stream.batch(step) for stream in self._streams])
        positions = positions.to(self._device, non_blocking=True)
        draws = [
            generator_for(self._seed, "view", step, number, device=self._device)
            for number in range(self._views)
        ]
        views = self._samples.views(positions, draws)
        return Batch(views[0], views[-1], self._labels[positions], self._unlabeled, positions)


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
