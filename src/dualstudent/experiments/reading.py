"""Reading experiments from TOML files of the package or the user."""

import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dualstudent.errors import UserError
from dualstudent.experiments.schema import Experiment
from dualstudent.settings import explain, suggest

_RECIPE_KEYS = ("extends", "data", "method", "network", "schedule")


def list_experiments() -> list[str]:
    """Names of the experiments that come with the package: tables first, then figures."""
    files = resources.files("dualstudent.experiments").iterdir()
    names = (file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))
    return sorted(names, key=lambda name: (not name.startswith("table"), name))


def load_experiment(name_or_path: str | Path) -> Experiment:
    """Load an experiment by its name, or from a file, whose name becomes that of the experiment.

    Raises:
        UserError: if there is no such experiment, or a key is wrong.

    Example:
        >>> load_experiment("table1").place
        'Table 1'
    """
    path, text = Path(name_or_path), _read_text(str(name_or_path))
    try:
        table = _resolve_recipes(path, tomllib.loads(text)) | {"name": path.stem}
    except (ValueError, RecursionError) as error:  # also for endless numbers and deep nesting
        raise UserError(f"experiment {name_or_path}: not valid TOML: {error}") from error
    if "rows" not in table and not table.keys().isdisjoint(_RECIPE_KEYS):
        raise UserError(f"experiment {path}: is a recipe; run it with 'dualstudent train {path}'")
    try:
        experiment = Experiment.model_validate(table)
    except ValidationError as error:
        problems = explain(error, Experiment, table)
        raise UserError(f"experiment {name_or_path}: {problems}") from error
    experiment._own = str(name_or_path) not in list_experiments()
    return experiment


def _resolve_recipes(path: Path, part: Any) -> Any:
    """Resolve paths of recipe files, which are relative to the experiment's file."""
    if isinstance(part, list):
        return [_resolve_recipes(path, each) for each in part]
    if not isinstance(part, dict):
        return part
    found = {key: _resolve_recipes(path, value) for key, value in part.items()}
    if isinstance(recipe := found.get("recipe"), str) and recipe.endswith(".toml"):
        found["recipe"] = str(path.parent / recipe)
    return found


def _read_text(name: str) -> str:
    if name in list_experiments():
        return (resources.files("dualstudent.experiments") / f"{name}.toml").read_text("utf-8")
    if not name.endswith(".toml"):
        known = list_experiments()
        raise UserError(
            f"there is no experiment {name!r}{suggest(name, known)} ({', '.join(known)})"
        )
    try:
        return Path(name).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"experiment {name}: cannot be read ({error})") from error
