"""Reading experiments: TOML files of the package, or of the user."""

import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dualstudent.errors import UserError
from dualstudent.experiments.schema import Experiment
from dualstudent.settings import explain

_OF_RECIPES = ("extends", "data", "method", "network", "schedule")


def experiment_names() -> list[str]:
    """The experiments that come with the package: tables first, then figures."""
    files = resources.files("dualstudent.experiments").iterdir()
    names = (file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))
    return sorted(names, key=lambda name: (not name.startswith("table"), name))


def load_experiment(name_or_path: str | Path) -> Experiment:
    """An experiment of the package, or of a file whose name becomes that of the experiment.

    Raises:
        UserError: names what is wrong.

    Example:
        >>> load_experiment("table1").place
        'Table 1'
    """
    path = Path(name_or_path)
    try:
        table = _beside(path, tomllib.loads(_text(str(name_or_path)))) | {"name": path.stem}
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"experiment {name_or_path}: not valid TOML: {error}") from error
    if "rows" not in table and not table.keys().isdisjoint(_OF_RECIPES):
        raise UserError(f"experiment {path}: is a recipe; 'dualstudent train {path}' runs it")
    try:
        return Experiment.model_validate(table)
    except ValidationError as error:
        problems = explain(error, Experiment, table)
        raise UserError(f"experiment {name_or_path}: {problems}") from error


def _beside(path: Path, part: Any) -> Any:
    """A recipe that is a file is named from where the experiment's file is."""
    if isinstance(part, list):
        return [_beside(path, each) for each in part]
    if not isinstance(part, dict):
        return part
    found = {key: _beside(path, value) for key, value in part.items()}
    if isinstance(recipe := found.get("recipe"), str) and recipe.endswith(".toml"):
        found["recipe"] = str(path.parent / recipe)
    return found


def _text(name: str) -> str:
    if name in experiment_names():
        return (resources.files("dualstudent.experiments") / f"{name}.toml").read_text("utf-8")
    if not name.endswith(".toml"):
        known = ", ".join(experiment_names())
        raise UserError(f"there is no experiment {name!r}; use one of {known}")
    try:
        return Path(name).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"experiment {name}: cannot be read ({error})") from error
