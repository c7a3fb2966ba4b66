"""``dualstudent methods``: list the methods, or the settings of one."""

import ast
from importlib import resources
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from rich.table import Table
from rich.text import Text

from dualstudent.cli.console import console
from dualstudent.errors import UserError


def methods(
    name: Annotated[str | None, typer.Argument(help="Show the settings of this method.")] = None,
) -> None:
    """List the methods, or show the settings of one."""
    console.print(_build_methods_table() if name is None else _build_settings_table(name))


def read_summaries() -> dict[str, str]:
    """Name → summary of every method, read from the sources.

    Importing the methods would load torch, which takes seconds. So this looks for assignments:
    to ``Settings`` and ``summary`` in classes, and to ``name`` in their settings.

    Example:
        >>> read_summaries()["supervised"]
        'labeled samples only'
    """
    folder = resources.files("dualstudent") / "methods"
    files = [file for file in folder.iterdir() if file.name.endswith(".py")]
    classes = {
        node.name: node.body
        for file in files
        for node in ast.parse(file.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef)
    }
    summaries = {}
    for body in classes.values():
        summary, settings = _find_assigned(body, "summary"), _find_assigned(body, "Settings")
        if summary is not None and settings is not None:
            name = _find_assigned(classes[ast.unparse(settings)], "name")
            assert name is not None  # settings of a method say which
            summaries[ast.literal_eval(name)] = ast.literal_eval(summary)
    return dict(sorted(summaries.items()))


def _find_assigned(body: list[ast.stmt], name: str) -> ast.expr | None:
    """The expression that a class assigns to ``name``, if it does."""
    for statement in body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=found)], value=ast.expr() as value)
                | ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value)
            ) if found == name:
                return value
    return None


def _build_methods_table() -> Table:
    table = Table(box=None, show_header=False)
    for name, summary in read_summaries().items():
        table.add_row(Text(name, "bold"), Text(summary))
    return table


def _build_settings_table(name: str) -> Table:
    """Key, default and meaning of every setting of a method."""
    from dualstudent.methods import METHODS
    from dualstudent.settings import suggest

    by_name = {str(method.Settings.model_fields["name"].default): method for method in METHODS}
    if name not in by_name:
        raise UserError(
            f"there is no method {name!r}{suggest(name, by_name)} "
            "('dualstudent methods' lists them)"
        )
    table = Table("key", "default", "meaning", title=by_name[name].summary)
    for key, field in by_name[name].Settings.model_fields.items():
        if key != "name":
            default = "required" if field.is_required() else repr(field.default)
            meaning = "; ".join(
                filter(None, [field.description, _describe_choices(field.annotation)])
            )
            table.add_row(key, default, meaning)
    return table


def _describe_choices(kind: Any) -> str:
    return " or ".join(map(repr, get_args(kind))) if get_origin(kind) is Literal else ""
