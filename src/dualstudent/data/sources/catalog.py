"""The data sets by name, found in the files of this folder."""

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Literal

from dualstudent.data import sources
from dualstudent.data.datasets import ImageFiles, Images
from dualstudent.data.images.listing import Part
from dualstudent.data.sources.source import Source


def _find_sources() -> dict[str, Source]:
    """All that the dictionaries ``SOURCES`` list: a new file needs no entry here."""
    found: dict[str, Source] = {}
    for module in iter_modules(sources.__path__):
        if module.name != "catalog":
            found |= getattr(import_module(f"{sources.__name__}.{module.name}"), "SOURCES", {})
    return found


SOURCES = _find_sources()

if TYPE_CHECKING:
    DataSetName = str
else:
    DataSetName = Literal[tuple(SOURCES)]


def load(name: DataSetName, part: Part, folder: Path) -> Images | ImageFiles:
    """The training or test part of a data set.

    Args:
        name: of the data set.
        part: ``"train"`` or ``"test"``.
        folder: the data folder, see :func:`dualstudent.data.sources.files.data_folder`.
    """
    return SOURCES[name].load(part, folder)
