"""Checks the imports in the source: lower layers must not import higher ones."""

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import takewhile
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
ARCHITECTURE = SOURCE.parent / "docs" / "architecture.md"
PACKAGE = "dualstudent"


def read_layers(header: str) -> tuple[set[str], ...]:
    """The rooms in a table of the architecture, from low to high; in a layer anything goes."""
    lines = ARCHITECTURE.read_text("utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(header))
    rows = takewhile(bool, lines[start + 2 :])
    return tuple(set(re.findall(r"`(?:\w+/(?=\w))?(\w+)/?`", row.split("|")[1])) for row in rows)


# Beginning of the names of the modules → their layers.
LAYERS = {"": read_layers("| modules |"), "data.": read_layers("| modules of `data/` |")}
ONLY_IN_CLI = {"rich", "typer"}
MAY_PRINT = {"cli", "estimator"}  # an estimator prints its progress if ``verbose`` asks for it


def modules() -> dict[str, Path]:
    """Name below the package → file; the package itself, which imports lazily, is left out."""
    found = {}
    for path in sorted((SOURCE / PACKAGE).rglob("*.py")):
        parts = path.relative_to(SOURCE / PACKAGE).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        if name:
            found[name] = path
    return found


def imported(path: Path) -> Iterator[str]:
    """Modules and names that a file imports, also inside of functions."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imports() -> Iterator[tuple[str, str]]:
    """(importing module, imported module), both below the package, or the name of another one."""
    known = modules()
    for name, path in known.items():
        for target in imported(path):
            if not target.startswith(f"{PACKAGE}."):
                yield name, target.split(".")[0]
                continue
            inside = target.removeprefix(f"{PACKAGE}.")
            yield name, inside if inside in known else inside.rpartition(".")[0] or inside


def room(module: str, inside: str = "") -> str:
    return module.removeprefix(inside).split(".", maxsplit=1)[0]


def layer(module: str, inside: str = "") -> int | None:
    if not module.startswith(inside):
        return None
    found = (n for n, rooms in enumerate(LAYERS[inside]) if room(module, inside) in rooms)
    return next(found, None)


@pytest.mark.parametrize("inside", LAYERS)
def test_the_tables_name_every_room_once(inside: str) -> None:
    rooms = {room(name, inside) for name in modules() if name.startswith(inside)}
    assert sorted(name for layer in LAYERS[inside] for name in layer) == sorted(rooms)


def test_nobody_imports_from_the_public_interface() -> None:
    """Modules of the package import from each other, not from the package itself."""
    public = [
        (module, target)
        for module, path in modules().items()
        for target in imported(path)
        if target.startswith(f"{PACKAGE}.") and layer(target.removeprefix(f"{PACKAGE}.")) is None
    ]
    assert public == []


@pytest.mark.parametrize("inside", LAYERS)
def test_nobody_imports_upwards(inside: str) -> None:
    wrong = set()
    for module, target in imports():
        own, its = layer(module, inside), layer(target, inside)
        if own is not None and its is not None and its > own:
            wrong.add((module, target))
    assert wrong == set()


def test_nobody_uses_the_terminal_below_the_command_line() -> None:
    using = {module for module, target in imports() if target in ONLY_IN_CLI}
    assert {room(module) for module in using} == {"cli", "progress"}


def test_only_the_command_line_and_the_estimator_print() -> None:
    printing = {
        room(module)
        for module, path in modules().items()
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Name) and node.id == "print"
    }
    assert printing <= MAY_PRINT


@pytest.mark.parametrize("inside", LAYERS)
def test_rooms_do_not_import_each_other_in_a_circle(inside: str) -> None:
    needs: dict[str, set[str]] = {}
    for module, target in imports():
        if layer(module, inside) is not None and layer(target, inside) is not None:
            own, its = room(module, inside), room(target, inside)
            needs.setdefault(own, set()).update({its} - {own})
    circle: list[str] = []
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        circle = error.args[1]
    assert circle == []
