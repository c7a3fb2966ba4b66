"""Checks the imports in the source: lower layers must not import higher ones."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
PACKAGE = "dualstudent"

# From low to high; inside of a layer anything goes.
LAYERS = (
    {"errors", "settings", "generators", "signals", "atomic", "parallel", "discovery"},
    {"losses", "stability", "adversarial", "mixing", "prediction", "batch", "calibration"},
    {"data", "networks", "methods", "optimization"},
    {"recipes"},
    {"training"},
    {"export", "labeling", "report", "doctor", "estimator"},
    {"runs", "grid", "follower"},
    {"experiments"},
    {"cli", "__main__"},
)
ONLY_IN_CLI = {"rich", "typer"}


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


def room(module: str) -> str:
    return module.split(".", maxsplit=1)[0]


def layer(module: str) -> int | None:
    return next((n for n, rooms in enumerate(LAYERS) if room(module) in rooms), None)


def test_every_module_has_a_layer() -> None:
    assert {room(name) for name in modules() if layer(name) is None} == set()


def test_nobody_imports_from_the_public_interface() -> None:
    """Modules of the package import from each other, not from the package itself."""
    public = [
        (module, target)
        for module, path in modules().items()
        for target in imported(path)
        if target.startswith(f"{PACKAGE}.") and layer(target.removeprefix(f"{PACKAGE}.")) is None
    ]
    assert public == []


def test_nobody_imports_upwards_or_prints_below_the_command_line() -> None:
    wrong = set()
    for module, target in imports():
        own, its = layer(module), layer(target)
        upwards = own is not None and its is not None and its > own
        prints = target in ONLY_IN_CLI and room(module) != "cli"
        if upwards or prints:
            wrong.add((module, target))
    assert wrong == set()


def test_rooms_do_not_import_each_other_in_a_circle() -> None:
    needs: dict[str, set[str]] = {}
    for module, target in imports():
        if layer(target) is not None:
            needs.setdefault(room(module), set()).update({room(target)} - {room(module)})
    circle: list[str] = []
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        circle = error.args[1]
    assert circle == []
