"""The files of recipes: which there are, and their text.

Nothing here loads torch, which takes seconds, so that recipes are listed and shown at once.
"""

from importlib import resources
from pathlib import Path

from dualstudent.errors import UserError
from dualstudent.sealed import read_text
from dualstudent.settings import suggest

_MOST_BYTES = 2**24  # of a recipe
_TABLES = (".csv", ".tsv", ".parquet")  # endings of tables of own images


def list_recipe_names() -> list[str]:
    """List the names of the recipes of the package.

    Example:
        >>> "demo" in list_recipe_names()
        True
    """
    files = resources.files("dualstudent.recipes").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def read_recipe_source(name_or_path: str) -> str:
    """Read the text of a recipe of the package or of a file, with comments.

    Raises:
        UserError: if there is no such recipe.
    """
    path = Path(name_or_path)
    if name_or_path in list_recipe_names():
        return (resources.files("dualstudent.recipes") / f"{name_or_path}.toml").read_text("utf-8")
    try:
        is_folder, exists = path.is_dir(), path.exists()
    except OSError:  # a name too long
        is_folder = exists = False
    if is_folder:
        raise UserError(f"{path} is a folder, not a recipe; to train on its images: --data {path}")
    if path.suffix.lower() in _TABLES:
        raise UserError(f"{path} is a table, not a recipe; to train on its images: --data {path}")
    if path.suffix == ".toml" or exists:
        return read_text(path, _MOST_BYTES)
    raise UserError(
        f"there is no recipe {name_or_path!r}{suggest(name_or_path, list_recipe_names())} "
        "('dualstudent recipes' lists them, a file ends in .toml)"
    )
