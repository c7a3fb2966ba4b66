"""What the images of a run are called."""

from collections.abc import Callable
from dataclasses import dataclass

from dualstudent.data.cache import decode_once
from dualstudent.data.decoding import UnreadableImage
from dualstudent.data.image_files import ImageFiles
from dualstudent.data.prepare import OWN_IMAGE_SIZE, DataSettings
from dualstudent.data.prepared import PreparedData
from dualstudent.data.workers import Progress


@dataclass(frozen=True)
class KnownImage:
    """An image whose label was known before.

    Attributes:
        path: of its file.
        label: the name of its class.
        part: ``"train"`` or ``"test"``.
    """

    path: str
    label: str
    part: str


@dataclass(frozen=True)
class ImageNames:
    """The names of the images of a run.

    Attributes:
        of: position among its training samples → path; name and number in a published data set.
        known: own images with a label.
        unreadable: own images that were left out.
    """

    of: Callable[[int], str]
    known: tuple[KnownImage, ...] = ()
    unreadable: tuple[UnreadableImage, ...] = ()


def own_names(settings: DataSettings, progress: Progress | None) -> ImageNames:
    """Of own images, as :func:`~dualstudent.data.own.prepared_from_files` lays them out.

    Args:
        settings: name their path.
        progress: is told how many files were compared.
    """
    size = settings.image_size or OWN_IMAGE_SIZE
    images = decode_once(settings.listing(), size, settings.channels, progress=progress)
    listing = images.listing
    known = tuple(
        KnownImage(str(listing.paths[i]), listing.classes[listing.labels[i]], listing.parts[i])
        for i in (*listing.labeled, *listing.test)
    )
    return ImageNames(lambda position: str(listing.paths[position]), known, images.unreadable)


def published_names(settings: DataSettings, data: PreparedData) -> ImageNames:
    """Of a published data set: paths where it has any, else its name and a number from 0 on."""
    source = data.source
    assert source is not None
    if isinstance(source, ImageFiles):
        return ImageNames(lambda position: str(source.path(position)))

    def name(position: int) -> str:
        if position < len(source):
            return f"{source.name} {position}"
        return f"{settings.target} train {position - len(source)}"

    return ImageNames(name)
