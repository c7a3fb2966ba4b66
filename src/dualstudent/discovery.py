"""Finds the files of a folder, so that a new file there needs no entry elsewhere."""

from collections.abc import Iterable
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType


def import_folder(package: str, path: Iterable[str], without: str = "") -> list[ModuleType]:
    """Import every module of a package, in the order of their names.

    Args:
        package: its name.
        path: its ``__path__``.
        without: the module that is calling, if it is one of them.

    Example:
        >>> from dualstudent.data import sources
        >>> "dualstudent.data.sources.mnist" in [
        ...     module.__name__ for module in import_folder(sources.__name__, sources.__path__)
        ... ]
        True
    """
    names = [module.name for module in iter_modules(path) if module.name != without]
    return [import_module(f"{package}.{name}") for name in names]
