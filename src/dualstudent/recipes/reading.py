"""Reads recipes: TOML files that may extend other recipes."""

import json
import tomllib
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import tomli_w
from pydantic import ValidationError

from dualstudent.discovery import allow_imports, check_imports, find_imports
from dualstudent.errors import NotKeptWarning, UserError
from dualstudent.methods import list_defaults, list_settings
from dualstudent.methods.method import TASK_SETTINGS
from dualstudent.optimization.schedules import ScheduleSettings, infer_schedule_name
from dualstudent.recipes.files import list_recipe_names, read_recipe_source
from dualstudent.recipes.schema import Recipe
from dualstudent.settings import Table, explain

# Old names of sections → new names.
RENAMED = {"normalisation": "normalization", "augmentation": "transforms.weak"}


class RenamedKeyWarning(UserWarning):
    """A recipe uses an old name of a key."""


class RunsCodeWarning(UserWarning):
    """A recipe names code of others, which is run."""


# The name of a section that states none, as recipes of earlier versions do.
_DEFAULT_NAMES: dict[str, Callable[[Table], str]] = {
    "optimizer": lambda section: "sgd",
    "schedule": infer_schedule_name,
}


def load_recipe(
    name_or_path: str | Path, changes: Iterable[str] = (), imports: Collection[str] = ()
) -> Recipe:
    """Load a recipe of the package or of a file, apply changes, and validate it.

    A file may name networks and methods of your own by their import path, such as
    ``"my_package.nets:Tiny"``, which are imported, with a warning, as this runs their code.

    Args:
        name_or_path: a recipe of the package, or the path of a TOML file.
        changes: ``"key=value"`` each, with dotted keys and TOML values.
        imports: import paths that the recipe of a run, which may be a stranger's, may name, too.

    Raises:
        UserError: if the recipe is invalid; names the key, its value and what is allowed.

    Example:
        >>> load_recipe("demo", ["seed=3", "schedule.epochs=2"]).schedule.epochs
        2
    """
    table = read_recipe_table(str(name_or_path), imports)
    return validate(apply_changes(table, changes), str(name_or_path))


def read_recipe_table(name_or_path: str, imports: Collection[str] | None = ()) -> Table:
    """Read a recipe and those it extends into one table, without validating it.

    Warns of code of others that they name.

    Args:
        name_or_path: as in :func:`load_recipe`.
        imports: as in :func:`load_recipe`; None if the caller checks what may be imported.
    """
    return _resolve(name_or_path, imports, seen=())


def apply_changes(table: Table, changes: Iterable[str]) -> Table:
    """Apply changes to a table, as in :func:`load_recipe`, without validating it.

    Warns of settings that another method, network, optimizer or schedule does not keep.

    Example:
        >>> apply_changes({"seed": 1}, ["seed=2", "data.labels=50%"])
        {'seed': 2, 'data': {'labels': '50%'}}
    """
    result = dict(table)
    changes = [changes] if isinstance(changes, str) else changes
    for change in sorted(changes, key=_sets_no_name):  # names first: they reset their section
        _apply(result, change)
    stated = {change.partition("=")[0].strip().removeprefix("method.") for change in changes}
    warn_of_changes(table, result, stated, "settings")
    return result


def validate(table: Table, origin: str) -> Recipe:
    """Make a recipe from a table, and import the code that it names; see :func:`check_imports`.

    Raises:
        UserError: if it is invalid; names all problems and ``origin`` in one line.
    """
    table = _name_defaults(table)
    try:
        return Recipe.model_validate(table, context=allow_imports(find_imports(table)))
    except ValidationError as error:
        raise UserError(f"recipe {origin}: {explain(error, Recipe, table)}") from error


def merge(base: Table, over: Table) -> Table:
    """Merge two tables, section by section; values of ``over`` take precedence.

    If a section has another name in ``over``, it is replaced, except for what does not depend
    on the name: a method keeps the settings of the task, stated or not, a schedule its length and
    ramp.

    Example:
        >>> base = {"method": {"name": "dual-student", "label_smoothing": 0.1}}
        >>> merge(base, {"method": {"stabilization_weight": 2}})["method"]
        {'name': 'dual-student', 'label_smoothing': 0.1, 'stabilization_weight': 2}
        >>> merge(base, {"method": {"name": "pi"}})["method"]
        {'label_smoothing': 0.1, 'name': 'pi'}
    """
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        if not (isinstance(below, dict) and isinstance(value, dict)):
            result[key] = value
        elif _has_same_name(key, below, value):
            result[key] = merge(below, value)
        else:
            result[key] = _start_afresh(key, below, value)
    return result


def warn_of_changes(before: Table, after: Table, stated: Collection[str], where: str) -> None:
    """Warn of settings that another method, network, … of a recipe does not keep, or keeps.

    Args:
        before: the recipe.
        after: the changed one.
        stated: keys of the section ``method`` that the user states.
        where: the user states them.
    """
    _warn_of_dropped(before, after, where)
    _warn_of_kept_defaults(before, after, stated, where)


def move_key(table: Table, old: str, new: str) -> Table:
    """Move the value at the dotted key ``old`` to ``new``, and remove empty sections.

    Example:
        >>> move_key({"a": {"b": {"x": 1}}, "c": {"y": 2}}, "a.b", "c")
        {'c': {'x': 1, 'y': 2}}
    """
    section, _, last = old.rpartition(".")
    inside = table.get(section) if section else table
    if not isinstance(inside, dict) or last not in inside:
        return table
    rest = {key: value for key, value in inside.items() if key != last}
    if section:
        others = {key: value for key, value in table.items() if key != section}
        rest = others | {section: rest} if any(rest.values()) else others
    return merge(_nest(new.split("."), inside[last]), rest)


def to_toml(recipe: Recipe) -> str:
    """Write a recipe as TOML, with all settings."""
    return tomli_w.dumps(recipe.model_dump(mode="json", exclude_none=True))


def from_json(text: str) -> Recipe:
    """Read a recipe that this program wrote by ``model_dump_json``, to hand it to a process.

    Unlike a pickle, it names code of others by import path, which the other process can find.
    """
    return validate(json.loads(text), "handed over")


def _resolve(name: str, imports: Collection[str] | None, seen: tuple[str, ...]) -> Table:
    """Read a recipe and merge it with the one it extends."""
    if name in seen:
        raise UserError(f"recipe {name}: extends itself through {' → '.join((*seen, name))}")
    try:
        table = tomllib.loads(read_recipe_source(name))
    except UserError:
        raise
    except (ValueError, RecursionError) as error:  # also for endless numbers and deep nesting
        raise UserError(f"recipe {name}: not valid TOML: {error}") from error
    table = rename_old_keys(table, f"recipe {name}")
    if {"rows", "columns"} <= table.keys():
        raise UserError(f"recipe {name}: is an experiment; 'dualstudent reproduce {name}' runs it")
    if imports is not None:
        _warn_of_code(table, imports, name)
    base = table.pop("extends", None)
    if base is None:
        return table
    if not isinstance(base, str):
        raise UserError(f"recipe {name}: extends = {base!r} must name one recipe")
    if base.endswith(".toml"):  # relative to this file
        base = str(Path(name).parent / base)
    below = _resolve(base, imports, (*seen, name))
    result = merge(below, table)
    if name not in list_recipe_names():  # ours are meant as they are
        warn_of_changes(below, result, find_stated(table), f"recipe {name}")
    return result


def find_stated(table: Table) -> set[str]:
    """Find the keys of a section ``method``, which may be anything in a file."""
    method = table.get("method")
    return set(method) if isinstance(method, dict) else set()


def _warn_of_code(table: Table, imports: Collection[str], name: str) -> None:
    """Warn of code of others that a file names; raise if the file may be a stranger's."""
    if named := find_imports(table):
        if (Path(name).parent / "run.json").exists():
            check_imports(table, imports, name)
        text = f"recipe {name}: runs the code of {', '.join(sorted(named))}"
        warnings.warn(text, RunsCodeWarning, stacklevel=5)


def rename_old_keys(table: Table, where: str) -> Table:
    """Replace old names of sections by new ones, with a warning each."""
    for old, new in RENAMED.items():
        if old in table:
            warnings.warn(f"{where}: {old} is called {new} now", RenamedKeyWarning, stacklevel=2)
            table = move_key(table, old, new)
    return table


def _name_defaults(table: Table) -> Table:
    """Add the names of optimizer and schedule where a recipe leaves them out."""
    named = dict(table)
    for key, default in _DEFAULT_NAMES.items():
        section = named.get(key)
        if isinstance(section, dict):
            named[key] = {"name": default(section)} | section
    if isinstance(stages := named.get("stages"), list):
        named["stages"] = [_name_defaults(s) if isinstance(s, dict) else s for s in stages]
    return named


def _start_afresh(key: str, base: Table, over: Table) -> Table:
    """Replace a section by one of another name, which keeps what does not depend on the name."""
    kept: Collection[str] = ()
    if key == "schedule":
        kept = ScheduleSettings.model_fields.keys()
    elif key == "method":
        kept = TASK_SETTINGS & list_settings(over["name"])
        base = _find_kept_defaults(base, over) | base
    return {k: v for k, v in base.items() if k in kept} | over


def _find_kept_defaults(base: Table, over: Table) -> Table:
    """Find the defaults of one method that another keeps, since they are of the task."""
    old, new = (list_defaults(section.get("name")) for section in (base, over))
    task = TASK_SETTINGS & old.keys() & new.keys()
    return {key: old[key] for key in task if old[key] != new[key]}


def _warn_of_kept_defaults(
    before: Table, after: Table, stated: Collection[str], where: str
) -> None:
    """Warn of defaults that a new method keeps, unless the recipe or the user states a value."""
    old, new = before.get("method"), after.get("method")
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return
    for key, value in _find_kept_defaults(old, new).items():
        if key not in old and key not in stated:
            warnings.warn(
                f"{where}: method.name = {new['name']!r} gets {key} = {value!r}, as "
                f"{old['name']!r} in this recipe, so that methods are compared fairly; alone it "
                f"would have {list_defaults(new['name'])[key]!r}",
                NotKeptWarning,
                stacklevel=3,
            )


def _warn_of_dropped(before: Table, after: Table, where: str) -> None:
    """Warn of settings that were lost because a section has another name now."""
    for key, old in before.items():
        new = after.get(key)
        if not (isinstance(old, dict) and isinstance(new, dict)) or _has_same_name(key, old, new):
            continue
        if key == "method" and not list_settings(new["name"]):
            continue  # there is no such method, which is what the user should read
        # A setting of the task is only missing where the method has nothing to set.
        lost = [f"{k} = {v!r}" for k, v in old.items() if k not in new and k not in TASK_SETTINGS]
        if lost:
            warnings.warn(
                f"{where}: {key}.name = {new['name']!r} has its own defaults and does not keep "
                f"{', '.join(lost)}",
                NotKeptWarning,
                stacklevel=3,
            )


def _has_same_name(key: str, base: Table, over: Table) -> bool:
    default = _DEFAULT_NAMES[key](base) if key in _DEFAULT_NAMES else None
    name = base.get("name", default)
    return bool(over.get("name", name) == name)


def _sets_no_name(change: str) -> bool:
    return change.partition("=")[0].strip().split(".")[-1] != "name"


def _apply(table: Table, change: str) -> None:
    key, equals, text = change.partition("=")
    parts = [part.strip() for part in key.split(".")]
    if not equals or not all(parts) or "\n" in change:
        raise UserError(f"setting {change!r}: write it as key=value, for example seed=1")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()  # a bare word is a string
    except (ValueError, RecursionError) as error:  # an endless number, or deep nesting
        raise UserError(f"setting {change[:40]!r}…: has too many digits or brackets") from error
    table.update(merge(table, rename_old_keys(_nest(parts, value), "settings")))


def _nest(keys: Sequence[str], value: Any) -> Table:
    for key in reversed(keys):
        value = {key: value}
    return cast(Table, value)
