"""What is checked before a training: do method, networks, data and settings go together?"""

import warnings

from dualstudent.data.prepared import PreparedData
from dualstudent.errors import UserError
from dualstudent.methods import Method, find_method
from dualstudent.networks.domains import normalizes_vectors
from dualstudent.networks.network import find_frozen
from dualstudent.recipes.schema import Recipe


def check_strong_views(method: Method, data: PreparedData) -> None:
    """Check that there are strong views if the method learns from them."""
    wanted = {policy for role in method.views for policy in role}
    if "strong" in wanted and not data.train.has_strong_views:
        raise UserError(
            f"method.name = {method.settings.name!r} learns from strong views, but nothing would "
            "perturb them; define them in transforms.strong (randaugment = 2, for example), or for "
            "data from Python in the transforms or strong_perturbation of prepare_arrays"
        )


def check_normalization(recipe: Recipe, data: PreparedData) -> None:
    """Check data from Python; those of a recipe are normalized as it says."""
    expected = recipe.network.normalization
    if expected is not None and data.train.normalization != expected:
        raise UserError(
            f"the weights of {recipe.network.name} need the normalization mean={expected.mean}, "
            f"std={expected.std}; pass it to prepare_arrays as Normalization(…)"
        )


def check_domains(recipe: Recipe, data: PreparedData) -> None:
    """Check that all networks normalize alike, and that there are domains to normalize apart."""
    networks = recipe.method.networks(recipe.network)
    if len({each.batch_norm for each in networks}) > 1:
        raise UserError(
            "network.batch_norm and that of the other network differ; set both to 'by-domain'"
        )
    if networks[0].batch_norm == "by-domain" and data.is_target is None:
        raise UserError(
            "network.batch_norm = 'by-domain' needs two domains, but the data have one; name the "
            "other in data.target or data.target_path, or use 'together'"
        )
    if networks[0].batch_norm == "by-domain" and recipe.device.sync_batch_norm:
        raise UserError(
            "network.batch_norm = 'by-domain' does not go with device.sync_batch_norm, which would "
            "normalize both domains together; leave one of them out"
        )


def check_batch_norm(method: Method, recipe: Recipe, processes: int) -> None:
    """Check that batch norm of vectors gets two unlabeled samples in a pass: one has no variance.

    That of feature maps has one over the places of a single image, too.
    """
    count = recipe.batch.size - recipe.batch.labeled
    norms = (each for each in method.modules() if normalizes_vectors(each))
    if count > processes or find_frozen(method).issuperset(norms):
        return
    raise UserError(
        f"method.name = {method.settings.name!r}: its networks get the unlabeled samples of a "
        f"batch alone, and their batch norm of vectors needs {processes + 1} of them or more (of "
        f"two domains, of the target), not {count}; give more, or use a network without it, such "
        "as network.name = 'mlp' with norm = 'layer'"
    )


def warn_of_unreachable_thresholds(recipe: Recipe, classes: int) -> None:
    """Warn of thresholds that a student which learned the smoothed labels exactly does not reach.

    It is no error: the other terms of a loss may make students more confident than their labels.
    Called where a run begins, because trainers are also built to measure or to load something.

    Args:
        recipe: recipe of the run.
        classes: number of classes of its data.
    """
    for settings in (stage.method for stage in recipe.split_stages()):
        smoothing = settings.label_smoothing
        learned = 1 - smoothing * (1 - 1 / classes)
        for key in sorted(find_method(settings).thresholds) if smoothing else ():
            threshold = getattr(settings, key)
            if threshold >= learned:
                warnings.warn(
                    f"method.{key} = {threshold:.4g} may never be reached: with "
                    f"method.label_smoothing = {smoothing:.4g} and {classes} classes the labels "
                    f"ask for a top probability of {learned:.4g}; use a threshold below that, or "
                    "no label smoothing",
                    stacklevel=3,
                )
