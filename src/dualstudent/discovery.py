"""Finds code: the files of a folder, so that a new file there needs no entry elsewhere; and code of
others, by import path (``"my_package.nets:Tiny"``) or by entry point of an installed package.

Importing runs code. So what a file names is imported only if the user named it, too.
"""

import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, TypeVar

from dualstudent.errors import UserError
from dualstudent.settings import Settings, suggest

Kind = TypeVar("Kind", bound=Settings)

_IMPORTS = "imports"


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


class ForeignCode(UserError):
    """A file names code that the user has not named."""


def is_import_path(name: object) -> bool:
    """Return whether a name is an import path: a module, a colon, and a name in it.

    Example:
        >>> is_import_path("my_package.nets:Tiny"), is_import_path("digits-cnn")
        (True, False)
    """
    part = r"[^\W\d]\w*(\.[^\W\d]\w*)*"
    return isinstance(name, str) and re.fullmatch(f"{part}:{part}", name) is not None


def find_imports(table: Mapping[str, Any]) -> frozenset[str]:
    """Find the import paths that are names of sections of a recipe.

    Example:
        >>> sorted(find_imports({"network": {"name": "nets:Tiny"}, "method": {"name": "pi"}}))
        ['nets:Tiny']
    """
    return frozenset(_list_imports(table))


def _list_imports(table: Mapping[str, Any]) -> Iterator[str]:
    for value in table.values():
        if isinstance(value, Mapping):
            if is_import_path(value.get("name")):
                yield value["name"]
            yield from _list_imports(value)
        elif isinstance(value, list | tuple):
            for each in value:  # the name of a stage is no import path, but its sections have some
                yield from _list_imports(each if isinstance(each, Mapping) else {})


def allow_imports(names: Collection[str]) -> dict[str, Any]:
    """Make a context of validation in which these import paths may be imported."""
    return {_IMPORTS: frozenset(names)}


def check_imports(table: Mapping[str, Any], allowed: Collection[str], where: object) -> None:
    """Check that a file names no code that the user has not named.

    Raises:
        ForeignCode: otherwise.
    """
    if foreign := sorted(find_imports(table) - set(allowed)):
        flags = " ".join(f"--import {name}" for name in foreign)
        raise ForeignCode(
            f"{where}: names code that is no part of dualstudent, {', '.join(foreign)}; if you "
            f"trust it, let it run by {flags} (in Python: imports={foreign})"
        )


def find_plugin(name: str, group: str, context: Any = None) -> Any:
    """Import what an import path or an entry point names; None if it is neither.

    Args:
        name: such as ``"my_package.nets:Tiny"``, or the name of an entry point.
        group: of entry points.
        context: of :func:`allow_imports`; needed for import paths. An entry point needs none, as
            its package was installed to be used by this one.

    Raises:
        ForeignCode: if the import path is not allowed.
        UserError: if it cannot be imported.
    """
    if is_import_path(name):
        if name not in (context or {}).get(_IMPORTS, ()):
            raise ForeignCode(f"{name}: is no part of dualstudent, and was not imported")
        return import_object(name)
    for found in entry_points(group=group, name=name):
        return import_object(f"{found.module}:{found.attr}")
    return None


def validate_plugin(settings: type[Kind], table: Mapping[str, Any], context: Any) -> Kind:
    """Make the settings of code of others from the section that names it.

    Raises:
        UserError: if they can have no other name than their own.
    """
    if is_import_path(table["name"]) and settings.model_fields["name"].annotation is not str:
        raise UserError(
            f"{table['name']}: {settings.__name__} fixes its name; declare it as name: str = …"
        )
    return settings.model_validate(table, context=context)


def import_object(path: str) -> Any:
    """Import what a path names: from installed packages, or from the current folder.

    Raises:
        UserError: if it is not there, or the import fails.

    Example:
        >>> import_object("math:pi")
        3.141592653589793
    """
    module_name, _, inside = path.partition(":")
    try:
        with _current_folder_on_path():
            found: Any = import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name != missing and not module_name.startswith(f"{missing}."):
            raise UserError(f"{path}: its import fails, as there is no module {missing}") from error
        raise UserError(
            f"{path}: there is no module {module_name}; install its package, or work in the folder "
            "where it is"
        ) from error
    except Exception as error:  # any code may run here
        raise UserError(f"{path}: its import fails: {type(error).__name__}: {error}") from error
    for part in inside.split("."):
        if not hasattr(found, part):
            raise UserError(f"{path}: {module_name} has no {inside}{suggest(part, dir(found))}")
        found = getattr(found, part)
    return found


@contextmanager
def _current_folder_on_path() -> Iterator[None]:
    """Find modules in the current folder, after all others; later imports do not look there."""
    here = str(Path.cwd())
    if {"", here} & set(sys.path):
        yield
        return
    sys.path.append(here)  # last, so that a file here never hides a package
    try:
        yield
    finally:
        with suppress(ValueError):  # the module may have changed it
            sys.path.remove(here)
