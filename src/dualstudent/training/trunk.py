"""The features of a recipe's trunk in place of its images, in training and afterwards."""

import math
import time
from dataclasses import replace
from pathlib import Path

from dualstudent.data.features import Standardization
from dualstudent.data.prepared import PreparedData
from dualstudent.data.samples import Samples
from dualstudent.errors import UserError
from dualstudent.methods import needs_strong_views
from dualstudent.parallel import Progress
from dualstudent.recipes.schema import Recipe
from dualstudent.settings import Settings
from dualstudent.trunks.features import keep_features
from dualstudent.trunks.samples import KeptFeatures
from dualstudent.trunks.trunk import StandardizedTrunk, TrunkSettings, build_trunk

_SECONDS = 3.0  # until a forecast is made
_SLACK = 1.5  # clean images come first, in full precision, and take about twice as long as views


def use_trunk(recipe: Recipe, data: PreparedData, progress: Progress | None = None) -> PreparedData:
    """Replace images by features of the recipe's trunk; without a trunk, return the same data.

    Args:
        recipe: strong views are kept only if one of its methods uses them.
        data: images, or features from an earlier call.
        progress: receives the number of views that are done.

    Raises:
        UserError: if data and trunk do not fit together, or weights are missing.
        Interrupted: after Ctrl-C, SIGTERM or SIGHUP; what has been computed is kept.
    """
    settings = recipe.trunk
    if settings is None:
        return data
    if not any(needs_strong_views(stage.method) for stage in recipe.split_stages()):
        settings = settings.model_copy(update={"strong_views": 0})
    if data.trunk == settings:
        return data
    images = data.train.images if isinstance(data.train, KeptFeatures) else data.train
    if len(images.shape) != 3:
        raise UserError(f"trunk.name = {settings.name!r} is for images; the data are vectors")
    kept = keep_features(
        data,
        build_trunk(settings, images.shape[0]),
        settings.weak_views,
        settings.strong_views,
        settings.seed,
        precision=settings.precision,
        progress=progress,
        device=recipe.device.gpu or "cpu",
    )
    return replace(kept, trunk=settings)


def use_trunk_within(
    seconds: float, recipe: Recipe, data: PreparedData, progress: Progress | None = None
) -> tuple[Recipe, PreparedData]:
    """Like :func:`use_trunk`, with as many views of every image as can be computed in time.

    One weak and one strong view are added at a time. Kept features take no time, and those that
    were begun in vain are kept for the next call.

    Args:
        seconds: time for the features.
        recipe: with a trunk; has the largest numbers of views.
        data: images.
        progress: receives the number of views that are done.

    Returns:
        The recipe with the numbers of views that there are, and the data.

    Raises:
        TrunkTooSlow: if not even one view of each kind can be computed in time.
        UserError: as :func:`use_trunk`.
    """
    assert recipe.trunk is not None
    found, most = None, recipe.trunk
    deadline = time.monotonic() + seconds
    for count in range(1, max(most.weak_views, most.strong_views) + 1):
        views = {
            "weak_views": min(count, most.weak_views),
            "strong_views": min(count, most.strong_views),
        }
        fewer = recipe.model_copy(update={"trunk": most.model_copy(update=views)})
        try:
            watch = _Watch(deadline, 1.0 if found else _SLACK, progress)
            found = fewer, use_trunk(fewer, data, watch)
        except _TooLong as error:
            if found is None:
                raise TrunkTooSlow(
                    f"the features of {most.name} at {most.image_size} pixels take about "
                    f"{math.ceil(error.seconds)} s here, even with one view of each kind, and the "
                    f"budget leaves {math.floor(seconds)} s for them; give more time, or take a "
                    "smaller trunk.image_size"
                ) from None
            break
    assert found is not None
    return found


class TrunkTooSlow(UserError):
    """The features of a trunk take more time than there is."""


class _TooLong(Exception):
    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class _Watch:
    """Hands progress on, and stops work that takes more than ``slack`` times what is left."""

    def __init__(self, deadline: float, slack: float, progress: Progress | None) -> None:
        self._deadline, self._slack, self._progress = deadline, slack, progress

    def on_start(self, step: int, total: int) -> None:
        self._started, self._total = time.monotonic(), total
        if self._progress is not None:
            self._progress.on_start(step, total)

    def on_step(self, step: int) -> None:
        if self._progress is not None:
            self._progress.on_step(step)
        spent, left = (time.monotonic() - self._started, self._deadline - self._started)
        expected = spent * self._total / step
        if spent >= _SECONDS and step < self._total and expected > self._slack * left:
            raise _TooLong(expected)


class TrunkNotes(Settings):
    """What a model must know about the trunk that it was trained with, besides the recipe.

    Attributes:
        images: shape of the images, (channels, H, W).
        weights: checksum of the trunk's weights.
    """

    images: tuple[int, ...]
    weights: str


def describe_trunk(samples: Samples) -> TrunkNotes | None:
    """Describe the trunk whose features the samples are; None if they are none."""
    if not isinstance(samples, KeptFeatures):
        return None
    return TrunkNotes(images=samples.images.shape, weights=samples.weights)


def rebuild_trunk(
    settings: TrunkSettings, notes: TrunkNotes, scale: Standardization, where: Path | str
) -> StandardizedTrunk:
    """Build the trunk of a trained model again.

    Args:
        settings: of the trunk.
        notes: of the model.
        scale: standardization of the features, measured in training.
        where: the model, for messages.

    Raises:
        UserError: if its weights are missing, or are not those of the training.
    """
    trunk = build_trunk(settings, notes.images[0])
    if trunk.checksum != notes.weights:
        raise UserError(
            f"{where}: was trained with other weights of {settings.name} than those of "
            f"trunk.weights = {settings.weights!r} now; restore them, or train again"
        )
    return StandardizedTrunk(trunk, scale)
