"""Own images: lists them and prepares them for a run."""

import hashlib
import warnings
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import torch
from torch import Tensor

from dualstudent.data.images.cache import DecodedImages
from dualstudent.data.images.decoding import VERSION
from dualstudent.data.images.duplicates import find_exact_duplicates
from dualstudent.data.images.folders import find_domains, list_domains, list_folder
from dualstudent.data.images.listing import Listing
from dualstudent.data.images.tables import Columns, list_table
from dualstudent.data.paths import RIGHTS_TO_IMAGES, path_exists
from dualstudent.data.prepared import PreparedData
from dualstudent.data.samples import ImageSamples
from dualstudent.data.splits import choose_held_out, choose_labeled, prefer_unlabeled
from dualstudent.data.transforms.normalization import Normalization
from dualstudent.data.transforms.policy import Transforms
from dualstudent.errors import UserError


def list_images(
    data: Path,
    target: Path | None = None,
    unlabeled: str = "unlabeled",
    columns: Columns | None = None,
) -> Listing:
    """List the images of a folder, of a table, or of a source and a target folder.

    Labeled images come first, then unlabeled ones, then the test part.

    Args:
        data: a folder with a folder per class, or with such folders in its folders ``source`` and
            ``target``; or a CSV or Parquet file of paths and labels.
        target: a folder to adapt to; ``data`` is then the source.
        unlabeled: name of the folder of unlabeled images.
        columns: column names of the table; default: the usual ones.

    Raises:
        UserError: if one cannot train with these files; says what to change.
    """
    for path in filter(None, (data, target)):
        if not path_exists(path, RIGHTS_TO_IMAGES):
            table = ", or a CSV or Parquet file" if target is None else ""
            raise UserError(f"{path}: does not exist; give a folder{table}")
    if target is not None:
        for path in (data, target):
            if not path.is_dir():
                raise UserError(f"{path}: is not a folder; adaptation is from folder to folder")
        listing = list_domains(data, target, unlabeled)
    elif data.is_dir():
        both = find_domains(data)
        listing = (
            list_folder(data, unlabeled)
            if both is None
            else list_domains(*both, unlabeled, target_labels=True)
        )
    else:
        listing = list_table(data, columns)
    return listing.select([*listing.labeled, *listing.unlabeled, *listing.test])


@dataclass(frozen=True)
class LabeledImages:
    """The labels of own images, as a :class:`~dualstudent.data.datasets.Labels`.

    Attributes:
        images: all images of a listing from :func:`list_images`.
    """

    images: DecodedImages

    @property
    def name(self) -> str:
        """Name of the folder or table."""
        return self.images.listing.name

    @cached_property
    def labels(self) -> Tensor:
        """(N,) int64 in [0, C)."""
        listing = self.images.listing
        return torch.tensor(listing.labels[: len(listing.labeled)])

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the C classes."""
        return self.images.listing.classes

    def __len__(self) -> int:
        return len(self.labels)

    def fingerprint(self) -> str:
        """Return the SHA-256 of labeled images and labels."""
        digests = self.images.digests[: len(self)].tobytes()
        return hashlib.sha256(digests + self.labels.numpy().tobytes()).hexdigest()


def prepare_files(
    images: DecodedImages,
    labels: int | str,
    validation: float,
    seed: int,
    transforms: Transforms,
    normalization: Normalization,
    spare_target: bool = False,
) -> PreparedData:
    """Prepare own images for a run; their pixels stay in the memory-mapped file.

    Args:
        images: decoded images of a listing from :func:`list_images`.
        labels: number or share of labels to train with, or "all"; images with other labels
            count as unlabeled; those of the source are not used then.
        validation: share of the labels to hold out for evaluation; 0 if there is a test part.
            Copies of held-out images are not used for training.
        seed: seed of the choice.
        transforms: perturbations of weak and strong views.
        normalization: normalization of the pixel values.
        spare_target: whether only labels of the source are held out, if there are two domains.

    Raises:
        UserError: if there is a validation share beside a test part, if it is too small, or if
            there are not so many labels.
    """
    listing = images.listing
    known, trained = len(listing.labeled), len(listing.labeled) + len(listing.unlabeled)
    truth = torch.tensor(listing.labels)
    source = LabeledImages(images)
    tested = hidden = torch.arange(trained, len(listing))
    if validation:
        tested, hidden = _hold_out(source, validation, seed, spare_target)
    labeled = _exclude(hidden, 0, known)
    if labels != "all":
        labeled = choose_labeled(source, labels, seed, labeled)
    given = torch.full((trained,), -1)
    given[labeled] = truth[labeled]
    used, is_target = _exclude(hidden, 0, trained), None
    if listing.adapts:
        is_target = torch.tensor(listing.targets[:trained])
        used = used[is_target[used]]
    select = partial(_select_samples, images, transforms, normalization)
    return PreparedData(
        listing.classes,
        select(torch.arange(trained)),
        given,
        labeled,
        prefer_unlabeled(used, given),
        select(tested),
        truth[tested],
        source,
        tuple(listing.paths[index] for index in tested.tolist()),
        len(images.unreadable),
        is_target=is_target,
    )


def _select_samples(
    images: DecodedImages, transforms: Transforms, normalization: Normalization, indices: Tensor
) -> ImageSamples:
    with warnings.catch_warnings(action="ignore"):  # the array is read-only, which is fine
        pixels = torch.from_numpy(images.pixels)
    # The digests tell the images apart without reading all pixels at every start.
    form = repr((VERSION, *images.pixels.shape[1:])).encode()
    return ImageSamples(
        pixels,
        transforms,
        normalization,
        rows=torch.from_numpy(images.rows)[indices],
        identity=form + images.digests[indices.numpy()].tobytes(),
    )


def _hold_out(
    source: LabeledImages, validation: float, seed: int, spare_target: bool
) -> tuple[Tensor, Tensor]:
    """Choose the images to validate on; return their indices, and those with their copies."""
    if source.images.listing.test:
        raise UserError(
            f"data.validation = {validation}, but {source.name} has test images, which the "
            "run is evaluated on; leave data.validation out"
        )
    first = torch.from_numpy(find_exact_duplicates(source.images.digests))
    distinct = first[: len(source)] == torch.arange(len(source))
    if spare_target:  # its labels are few, and all are learned from
        of_source = torch.tensor(source.images.listing.labeled_source)
        distinct &= torch.isin(torch.arange(len(source)), of_source)
    tested = choose_held_out(source, validation, seed, distinct)
    return tested, torch.isin(first, tested).nonzero().squeeze(1)


def _exclude(indices: Tensor, start: int, end: int) -> Tensor:
    """Return the indices from ``start`` to ``end`` that are not in ``indices``."""
    everywhere = torch.arange(start, end)
    return everywhere[~torch.isin(everywhere, indices)]
