"""What others may import: the names in ``__init__.pyi``, and modules of pure functions."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import dualstudent
from dualstudent import Method, MethodSettings
from dualstudent.networks.network import Network

ROOT = Path(__file__).parents[1]
MODULES = {"dualstudent.losses", "dualstudent.mixing", "dualstudent.stability"}
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md")]
PROGRAMS = [*ROOT.glob("benchmarks/*.py"), *ROOT.glob("examples/*.py")]
# These simulate a person who labels, and `train --data`, with parts that a user never calls alone.
INNER = {"teach", "choose_method", "labels_alone"}


def imported(path: Path) -> Iterator[tuple[str, str]]:
    """(module, name) of all that a file imports from the library."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found = [(node.module or "", alias.name) for alias in node.names]
        else:
            continue
        yield from (each for each in found if each[0].split(".")[0] == "dualstudent")


@pytest.mark.parametrize(
    "program", [path for path in PROGRAMS if path.stem not in INNER], ids=lambda path: path.stem
)
def test_benchmarks_and_examples_import_nothing_private(program: Path) -> None:
    private = {
        (module, name)
        for module, name in imported(program)
        if module not in MODULES and (module != "dualstudent" or name not in dir(dualstudent))
    }
    assert private == set()


# All methods and networks are public, and what only those need who write or stop one.
FAMILIES = (Method, MethodSettings, Network)
NEEDED = {"Task", "Interrupted"}


def test_no_name_is_public_that_nobody_needs() -> None:
    text = "\n".join(path.read_text("utf-8") for path in (*PAGES, *PROGRAMS))
    used = set(re.findall(r"\w+", text)) | NEEDED
    unused = {
        name
        for name in set(dir(dualstudent)) - used
        if not (isinstance(kind := getattr(dualstudent, name), type) and issubclass(kind, FAMILIES))
    }
    assert unused == set()


@pytest.mark.parametrize("name", dir(dualstudent))
def test_every_public_name_says_what_it_is(name: str) -> None:
    assert getattr(dualstudent, name).__doc__
