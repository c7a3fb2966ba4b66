"""Whatever people have of their own images: as one listing, and as what a run sees."""

import hashlib
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dualstudent.data.images.cache import DecodedImages
from dualstudent.data.images.duplicates import exact_duplicates
from dualstudent.data.images.folders import list_domains, list_folder
from dualstudent.data.images.listing import Listing
from dualstudent.data.images.tables import Columns, list_table
from dualstudent.data.prepared import PreparedData
from dualstudent.data.samples import ImageSamples
from dualstudent.data.sources.files import RIGHTS_TO_IMAGES, path_exists
from dualstudent.data.splits import choose_held_out
from dualstudent.data.transforms.normalization import Normalization
from dualstudent.data.transforms.policy import Transforms
from dualstudent.errors import UserError


def list_images(
    data: Path,
    target: Path | None = None,
    unlabeled: str = "unlabeled",
    columns: Columns | None = None,
) -> Listing:
    """The images of a folder, of a table, or of a source and a target folder.

    The labeled come first, then the unlabeled, then the test.

    Args:
        data: a folder with a folder per class, or a CSV or Parquet file of paths and labels.
        target: a folder to adapt to; then ``data`` is the source.
        unlabeled: the name of the folder of unlabeled images.
        columns: of the table; default: the usual names.

    Raises:
        UserError: if nobody could train with that; the message says what to change.
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
        listing = list_folder(data, unlabeled)
    else:
        listing = list_table(data, columns)
    return listing.select([*listing.labeled, *listing.unlabeled, *listing.test])


@dataclass(frozen=True)
class LabeledImages:
    """The labeled images of a listing, as a run keeps note of them.

    Attributes:
        name: of the folder or table.
        labels: (N,) int64 in [0, C).
        classes: the names of the C classes.
        digests: (N,) of the images in full size.
    """

    name: str
    labels: Tensor
    classes: tuple[str, ...]
    digests: NDArray[np.bytes_]

    def __len__(self) -> int:
        return len(self.labels)

    def fingerprint(self) -> str:
        """A SHA-256 of images and labels: equal exactly if the data are."""
        return hashlib.sha256(self.digests.tobytes() + self.labels.numpy().tobytes()).hexdigest()


def prepare_files(
    images: DecodedImages,
    validation: float,
    seed: int,
    transforms: Transforms,
    normalization: Normalization,
) -> PreparedData:
    """What a run sees of own images; they stay in the file they are mapped from.

    Args:
        images: of a listing of :func:`list_images`.
        validation: share of the labels to hold out and evaluate on; 0 if there is a test. Copies
            of an image that is held out, labeled or not, take no part in training.
        seed: decides which.
        transforms: what perturbs a view.
        normalization: of the pixel values.
    """
    listing = images.listing
    known, trained = len(listing.labeled), len(listing.labeled) + len(listing.unlabeled)
    with warnings.catch_warnings(action="ignore"):  # that nobody may write to it, and nobody does
        pixels = torch.from_numpy(images.pixels)
    rows, labels = torch.from_numpy(images.rows), torch.tensor(listing.labels)
    source = LabeledImages(listing.name, labels[:known], listing.classes, images.digests[:known])
    tested = hidden = torch.arange(trained, len(listing))
    if validation:
        tested, hidden = _held_out(images, source, validation, seed)
    labeled = _all_but(hidden, 0, known)
    given = torch.full((trained,), -1)
    given[labeled] = labels[labeled]
    return PreparedData(
        listing.classes,
        ImageSamples(pixels, transforms, normalization, rows=rows[:trained]),
        given,
        labeled,
        _all_but(hidden, known, trained) if listing.unlabeled else labeled,
        ImageSamples(pixels, transforms, normalization, rows=rows[tested]),
        labels[tested],
        source,
        tuple(listing.paths[index] for index in tested.tolist()),
        len(images.unreadable),
        target_from=known if listing.adapts else None,
    )


def _held_out(
    images: DecodedImages, source: LabeledImages, validation: float, seed: int
) -> tuple[Tensor, Tensor]:
    """Positions to validate on; and of all that may not train: they and their copies."""
    if images.listing.test:
        raise UserError(
            f"data.validation = {validation}, but {source.name} has test images, which the "
            "run is evaluated on; leave data.validation out"
        )
    first = torch.from_numpy(exact_duplicates(images.digests))
    distinct = first[: len(source)] == torch.arange(len(source))
    tested = choose_held_out(source, validation, seed, distinct)
    return tested, torch.isin(first, tested).nonzero().squeeze(1)


def _all_but(indices: Tensor, start: int, end: int) -> Tensor:
    """Those from ``start`` to ``end`` that are not among ``indices``."""
    everywhere = torch.arange(start, end)
    return everywhere[~torch.isin(everywhere, indices)]
