"""File names or numbers of the images of a run, for the sheet of images to label."""

from collections.abc import Callable
from dataclasses import dataclass

from dualstudent.data.datasets import ImageFiles
from dualstudent.data.images.cache import DecodedImages
from dualstudent.data.images.decoding import UnreadableImage
from dualstudent.data.images.listing import Listing, is_text
from dualstudent.data.prepare import DataSettings
from dualstudent.data.prepared import PreparedData
from dualstudent.errors import UserError


@dataclass(frozen=True)
class LabeledRow:
    """A row of the sheet for an image that already has a label.

    Attributes:
        path: of its file.
        label: name of its class.
        part: ``"train"`` or ``"test"``.
        domain: ``"source"`` or ``"target"``; empty if there is only one.
    """

    path: str
    label: str
    part: str
    domain: str


@dataclass(frozen=True)
class ImageNames:
    """The names of the images of a run.

    Attributes:
        get: index of a training sample → path, or name of the data set and number.
        labeled: the user's own images that have a label.
        unreadable: own images that were skipped.
        unlabeled: number of own images without a label, including copies of held-out images,
            which are left out of training; None for published data.
        get_domain: index of a training sample → ``"source"`` or ``"target"``; None if there is
            only one domain, and for published data.
    """

    get: Callable[[int], str]
    labeled: tuple[LabeledRow, ...] = ()
    unreadable: tuple[UnreadableImage, ...] = ()
    unlabeled: int | None = None
    get_domain: Callable[[int], str] | None = None


def name_own_images(images: DecodedImages) -> ImageNames:
    """Names of the user's own images: their paths.

    Raises:
        UserError: if a CSV file cannot hold the name of an image.
    """
    listing = images.listing
    _check_names(listing)

    def get_domain(index: int) -> str:
        return "target" if listing.targets[index] else "source"

    labeled = tuple(
        LabeledRow(
            str(listing.paths[i]),
            listing.classes[listing.labels[i]],
            listing.parts[i],
            get_domain(i) if listing.adapts else "",
        )
        for i in (*listing.labeled, *listing.test)
    )
    return ImageNames(
        lambda index: str(listing.paths[index]),
        labeled,
        images.unreadable,
        len(listing.unlabeled),
        get_domain if listing.adapts else None,
    )


def name_published_images(settings: DataSettings, data: PreparedData) -> ImageNames:
    """Names of published images: paths if they are files, else "DATASET PART NUMBER" from 0."""
    source = data.source
    assert source is not None
    if isinstance(source, ImageFiles):
        return ImageNames(lambda index: str(source.path(index)))

    def name(index: int) -> str:
        if index < len(source):
            return f"{source.name} {index}"
        return f"{settings.target or 'foreign'} train {index - len(source)}"

    return ImageNames(name)


def _check_names(listing: Listing) -> None:
    """Refuse names that could not be read back, before the user fills in labels."""
    wrong = [path for path in listing.paths if not is_text(str(path))]
    if wrong:
        raise UserError(
            f"{len(wrong)} file(s) have names that are not UTF-8, such as {wrong[0]}; "
            "rename them, and train again"
        )
