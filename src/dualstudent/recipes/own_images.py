"""Recipes for own images: a recipe with other data, or one that is chosen to suit the images."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dualstudent.data.images.cache import DecodedImages
from dualstudent.data.images.check import DataCheck
from dualstudent.data.images.decoding import Channels
from dualstudent.data.prepare import OF_PUBLISHED
from dualstudent.data.splits import count_held_out, count_labeled
from dualstudent.errors import UserError
from dualstudent.networks.efficientnet_lite import starts_from_run
from dualstudent.recipes.chooser import (
    AS_SET,
    HEADS,
    LABELED,
    LEARNING_RATES,
    UNLABELED,
    ImageFacts,
    can_align,
    choose_recipe,
    make_table,
)
from dualstudent.recipes.reading import apply_changes, merge, read_recipe_table, validate
from dualstudent.recipes.schema import Recipe
from dualstudent.settings import Table

_SIZES, _SIZES_ON_CUDA = (32, 64), (32, 64, 128, 224)
_SMALLEST = 16  # pixels a side, enough for every network to choose from
_TUNED_SIZES, _TUNED_SIZES_ON_GPU = (32, 160), (32, 224)  # least and most for fine-tuning
_LABELS_TO_SPARE, _VALIDATION = 10, 0.2
_NAMED = 5  # classes whose shares are named


def locate_images(path: Path, **others: Path | str | None) -> Table:
    """Make the section ``data`` of a recipe for a folder or table and its other settings."""
    return {"path": str(path)} | {k: str(v) for k, v in others.items() if v is not None}


def use_own_images(
    recipe: str, where: Table, changes: Sequence[str], imports: Collection[str] = ()
) -> Recipe:
    """Load a recipe and replace its data by own images.

    Args:
        recipe: name or path.
        where: section ``data`` from :func:`locate_images`.
        changes: ``"key=value"`` each.
        imports: import paths that the recipe may name, if it is one of a run.

    Raises:
        UserError: if the recipe is invalid.
    """
    table = read_recipe_table(recipe, imports)
    # These are meant for the data that the recipe names.
    replaced = (*OF_PUBLISHED, "labels", "adapts")
    kept = {key: value for key, value in table.get("data", {}).items() if key not in replaced}
    found = validate(apply_changes(table | {"data": kept | where}, changes), recipe)
    if not found.data.validation or found.data.target_path is not None:
        return found
    adapts = found.data.list_images().adapts
    return found.model_copy(update={"data": found.data.model_copy(update={"adapts": adapts})})


def validate_request(where: Table, changes: Sequence[str] = ()) -> Recipe:
    """Validate the user's settings before the images are read.

    Args:
        where: section ``data`` from :func:`locate_images`.
        changes: ``"key=value"`` each.

    Returns:
        A recipe of which only data, seed and device are meaningful.

    Raises:
        UserError: if a setting is invalid.
    """
    wanted = merge({"data": where}, apply_changes({}, changes))
    on_features = "trunk" in wanted
    unknown = ImageFacts(3, _SMALLEST, LABELED, UNLABELED, False, None, on_features)
    batch = {"size": LABELED + UNLABELED, "labeled": LABELED}
    refused: list[UserError] = []
    names = [HEADS["name"]] if on_features else list(LEARNING_RATES)
    # The network and, by the domains, the method, and so their valid keys, are not chosen yet.
    for adapts, name in product((False, True), names):
        facts = replace(unknown, adapts=adapts)
        table = make_table(facts, {}, {"name": name}, batch, 1, wanted)
        try:
            return validate(table, f"chosen for {where['path']}")
        except UserError as error:
            refused.append(error)
    raise refused[0]


def choose_form(asked: Recipe, typical: int, is_gray: bool) -> tuple[int, Channels]:
    """Choose size (pixels a side) and channels of the images, unless the user set them.

    Args:
        asked: recipe from :func:`validate_request`.
        typical: median length of the short side in pixels.
        is_gray: whether the images are known to have no color.
    """
    data, gpu = asked.data, asked.device.gpu
    size = data.image_size or _choose_size(typical, gpu == "cuda")
    if data.image_size is None and asked.trunk is not None:
        size = max(_SMALLEST, min(typical, asked.trunk.image_size))
    elif data.image_size is None and _find_tuned(asked):
        least, most = _TUNED_SIZES_ON_GPU if gpu else _TUNED_SIZES
        size = max(least, min(typical, most))
    return size, 1 if is_gray and "channels" not in data.model_fields_set else data.channels


def find_shares(
    asked: Recipe, images: DecodedImages, changes: Sequence[str]
) -> tuple[float, ...] | None:
    """Estimate how the classes are spread among the unlabeled images, where that is of use.

    Args:
        asked: recipe from :func:`validate_request`, with the same changes.
        images: in the form of :func:`choose_form`.
        changes: ``"key=value"`` each.

    Returns:
        The shares, empty if they are even; None if few labels do not tell, or nobody asks.
    """
    listing = images.listing
    from_scratch = asked.trunk is None and not _find_tuned(asked) and not listing.adapts
    of_use = can_align(apply_changes({}, changes)) and asked.data.labels == "all"
    if not (from_scratch and of_use):
        return None
    from dualstudent.trunks.shares import estimate_image_shares  # noqa: PLC0415  takes long

    train = torch.tensor([*listing.labeled, *listing.unlabeled])
    labels = torch.tensor(listing.labels)[train]

    def read(positions: Tensor) -> Tensor:
        return torch.from_numpy(images.pixels[images.rows[train[positions].numpy()]])

    found = estimate_image_shares(read, labels, len(listing.classes), asked.seed)
    return found.trusted if found else None


def complete_recipe(
    asked: Recipe,
    check: DataCheck,
    changes: Sequence[str],
    cross_validated: bool = True,
    shares: tuple[float, ...] | None = None,
) -> tuple[Recipe, dict[str, str]]:
    """Choose a recipe that suits the images and the user's settings.

    Args:
        asked: recipe from :func:`validate_request`, with the same changes.
        check: check of the images, in the form of :func:`choose_form`.
        changes: ``"key=value"`` each; they take precedence.
        cross_validated: whether labels are cross-validated if they can be; else some are held out.
        shares: of the classes among the unlabeled images, from :func:`find_shares`.

    Returns:
        The recipe, and key → why it has its value.
    """
    wanted, gpu = apply_changes({}, changes), asked.device.gpu
    by_labels = cross_validated and asked.trunk is not None and not check.adapts
    data, reasons = _choose_data(check, gpu == "cuda", by_labels, wanted.get("data", {}))
    if starts_from_run(asked.network) and reasons["data.validation"] != AS_SET:
        data["validation"] = 0.0
        if not any(check.test.values()):
            reasons["data.validation"] = "the run that the network starts from has seen all labels"
    labeled, unlabeled = _count_samples(check, data)
    facts = ImageFacts(
        data["channels"],
        data["image_size"],
        labeled,
        unlabeled,
        check.may_be_mirrored,
        gpu,
        on_features=asked.trunk is not None,
        tuned=_find_tuned(asked),
        shares=shares,
        adapts=check.adapts,
        color_matters=check.color_matters,
    )
    choice = choose_recipe(facts, wanted)
    if shares and "method.distribution_alignment" in choice.reasons:
        choice.reasons["method.distribution_alignment"] += f": {_name_shares(check, shares)}"
    where = asked.data.model_dump(mode="json", exclude_unset=True)
    if check.adapts and asked.data.target_path is None:
        where["adapts"] = True  # both domains are in one place
    if asked.trunk is not None:
        reasons["trunk.name"] = "is not trained; its features are computed once and kept"
        if "image_size" not in wanted.get("data", {}):
            reasons["data.image_size"] = "no more than the trunk sees"
    if facts.tuned:
        choice.reasons["network.name"] = "has seen many photos before; fine-tuned here"
        if "image_size" not in wanted.get("data", {}):
            reasons["data.image_size"] = "the short side of the images, as far as time allows"
    table = choice.table | {"data": data | where}
    return validate(table, f"chosen for {asked.data.path}"), reasons | choice.reasons


def _name_shares(check: DataCheck, shares: Sequence[float]) -> str:
    """Name the most frequent classes with their shares."""
    largest = sorted(zip(shares, check.labeled, strict=True), reverse=True)
    named = [f"{name} ({100 * share:.0f} %)" for share, name in largest[:_NAMED]]
    return ", ".join(named + ["…"] * (len(largest) > _NAMED))


def _find_tuned(asked: Recipe) -> str | None:
    """Return the name of the network if it starts from pretrained weights, else None."""
    pretrained = asked.trunk is None and asked.network.normalization is not None
    return asked.network.name if pretrained else None


def _count_samples(check: DataCheck, data: Table) -> tuple[int, int]:
    """Count the labeled and the unlabeled images that a run can be sure to train with."""
    spared = check.labeled_source.values()
    held_out = sum(count_held_out(count, data["validation"]) for count in spared)
    given, unlabeled = sum(check.labeled.values()) - held_out, check.unlabeled
    if data["validation"]:  # in the worst case, all copies are of held-out images
        given -= check.labeled_copies
        unlabeled = unlabeled and max(1, unlabeled - check.unlabeled_copies)
    labeled = count_labeled(data.get("labels", "all"), given, len(check.labeled))
    if check.adapts:
        return labeled, _count_of_target(check, unlabeled, labeled, labeled < given)
    return labeled, unlabeled + given - labeled


def _count_of_target(check: DataCheck, unlabeled: int, labeled: int, hides: bool) -> int:
    """Count the images of the target that unsupervised terms are sure to use.

    If all labels are used, and all of the target have one, these are all of the target.
    """
    known = max(1, sum(check.labeled_target.values()) - check.labeled_copies)
    if not hides:
        return unlabeled or known
    return max(1, unlabeled + max(0, known - labeled))


def _choose_data(
    check: DataCheck, cuda: bool, by_labels: bool, wanted: Mapping[str, Any]
) -> tuple[Table, dict[str, str]]:
    """Choose size, channels and validation share, with reasons."""
    validation, why_validation = _choose_validation(check, by_labels)
    chosen = {
        "image_size": check.size,
        "channels": 1 if check.is_gray else 3,
        "validation": validation,
    }
    reasons = {
        "image_size": _explain_size(check.typical, check.size, cuda),
        "channels": f"the images are {'gray' if check.is_gray else 'in color'}",
        "validation": why_validation,
    }
    return chosen | dict(wanted), {
        f"data.{key}": AS_SET if key in wanted else reason for key, reason in reasons.items()
    }


def _choose_size(typical: int, cuda: bool) -> int:
    """Keep small images nearly at their size; for others take the largest size up to theirs."""
    sizes = _SIZES_ON_CUDA if cuda else _SIZES
    if typical <= sizes[0]:
        return max(_SMALLEST, 4 * round(typical / 4))
    return max(size for size in sizes if size <= typical)


def _explain_size(typical: int, size: int, cuda: bool) -> str:
    why = f"half of the images have a short side of {typical:,} pixels or more"
    if size == _SMALLEST > typical + 2:
        return f"{why}; {size} is the least"
    if size == (_SIZES_ON_CUDA if cuda else _SIZES)[-1] < typical:
        return (
            f"{why}; {size} is the most that is chosen {'' if cuda else 'without a GPU'}".rstrip()
        )
    return why


def _choose_validation(check: DataCheck, by_labels: bool) -> tuple[float, str]:
    """Choose the share of labels to hold out, none if they can be cross-validated; a reason."""
    labels, classes = sum(check.labeled_source.values()), len(check.labeled)
    if any(check.test.values()):
        return 0.0, "there is a test part"
    if by_labels:
        return 0.0, (
            "there is no test part; each label is hidden once in short trainings "
            "(cross-validation), which take a few times as long as the training"
        )
    if labels < _LABELS_TO_SPARE * classes:
        return 0.0, (
            f"{labels} labels for {classes} classes are too few to spare any (fewer than "
            f"{_LABELS_TO_SPARE} a class on average)"
        )
    return _VALIDATION, "there is no test part; this share of the labels is the validation part"
