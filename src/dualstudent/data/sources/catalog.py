"""The data sets by name, found in the files of this folder."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dualstudent.data import sources
from dualstudent.data.datasets import ImageFiles, Images, Part
from dualstudent.data.sources.source import Source
from dualstudent.discovery import import_folder


def _find_sources() -> dict[str, Source]:
    """Import all files of this folder and join their dictionaries ``SOURCES``."""
    found: dict[str, Source] = {}
    for module in import_folder(sources.__name__, sources.__path__, without="catalog"):
        found |= getattr(module, "SOURCES", {})
    return found


SOURCES = _find_sources()

if TYPE_CHECKING:
    DataSetName = str
else:
    DataSetName = Literal[tuple(SOURCES)]


def load(name: DataSetName, part: Part, folder: Path) -> Images | ImageFiles:
    """Load the training or test part of a data set.

    Args:
        name: name of the data set.
        part: ``"train"`` or ``"test"``.
        folder: the data folder, see :func:`dualstudent.data.paths.find_data_folder`.
    """
    return SOURCES[name].load(part, folder)
