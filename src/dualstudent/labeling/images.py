"""What the images of a run are called."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dualstudent.data.datasets import ImageFiles
from dualstudent.data.images.cache import DecodedImages
from dualstudent.data.images.decoding import UnreadableImage
from dualstudent.data.images.listing import Listing
from dualstudent.data.prepare import DataSettings
from dualstudent.data.prepared import PreparedData
from dualstudent.errors import UserError


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
        of: index among its training samples → path; name and number in a published data set.
        known: own images with a label.
        unreadable: own images that were left out.
        unlabeled: how many own images have no label; also copies of held-out images, which take
            no part in a run.
    """

    of: Callable[[int], str]
    known: tuple[KnownImage, ...] = ()
    unreadable: tuple[UnreadableImage, ...] = ()
    unlabeled: int | None = None


def own_names(images: DecodedImages) -> ImageNames:
    """Of own images, as :func:`~dualstudent.data.images.own.prepare_files` lays them out."""
    listing = images.listing
    _check_fit_into_a_table(listing)
    known = tuple(
        KnownImage(str(listing.paths[i]), listing.classes[listing.labels[i]], listing.parts[i])
        for i in (*listing.labeled, *listing.test)
    )
    return ImageNames(
        lambda index: str(listing.paths[index]),
        known,
        images.unreadable,
        len(listing.unlabeled),
    )


def _check_fit_into_a_table(listing: Listing) -> None:
    """Refuse names that a table would be refused for, before somebody has filled it in."""
    for name in listing.classes:
        if name != name.strip() or name == "-1":
            raise UserError(
                f"the class {name!r} cannot stand in a table, where blanks around a label and -1 "
                "mean something else; rename its folder, and train again"
            )
    wrong = [path for path in listing.paths if _is_no_text(path)]
    if wrong:
        raise UserError(
            f"{len(wrong)} file(s) have names that are no UTF-8 text, as tables are, such as "
            f"{wrong[0]}; rename them, and train again"
        )


def _is_no_text(path: Path) -> bool:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return True
    return False


def published_names(settings: DataSettings, data: PreparedData) -> ImageNames:
    """Of a published data set: paths where it has any, else its name and a number from 0 on."""
    source = data.source
    assert source is not None
    if isinstance(source, ImageFiles):
        return ImageNames(lambda index: str(source.path(index)))

    def name(index: int) -> str:
        if index < len(source):
            return f"{source.name} {index}"
        return f"{settings.target} train {index - len(source)}"

    return ImageNames(name)
