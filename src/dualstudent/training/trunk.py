"""The features of a recipe's trunk in place of its images, in training and afterwards."""

from dataclasses import replace
from pathlib import Path

from dualstudent.data.features import Standardization
from dualstudent.data.prepared import PreparedData
from dualstudent.data.samples import Samples
from dualstudent.errors import UserError
from dualstudent.methods import MethodSettings, find_method
from dualstudent.parallel import Progress
from dualstudent.recipes.schema import Recipe
from dualstudent.settings import Settings
from dualstudent.trunks.features import keep_features
from dualstudent.trunks.samples import KeptFeatures
from dualstudent.trunks.trunk import StandardizedTrunk, TrunkSettings, build_trunk


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
    if not any(_needs_strong_views(stage.method) for stage in recipe.split_stages()):
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


def _needs_strong_views(settings: MethodSettings) -> bool:
    return any("strong" in policies for policies in find_method(settings).choose_views(settings))
