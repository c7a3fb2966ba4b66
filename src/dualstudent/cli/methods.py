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
    console.print(_methods_table() if name is None else _settings_table(name))


def read_summaries() -> dict[str, str]:
    """Name → summary of every registered method, read from the sources.

    Importing the methods would load torch, which takes seconds. So this looks for assignments:
    to ``METHODS`` in the package, to ``Settings`` and ``summary`` in the classes that it lists,
    and to ``name`` in their settings.

    Example:
        >>> read_summaries()["supervised"]
        'labeled samples only'
    """
    folder = resources.files("dualstudent") / "methods"
    files = [file for file in folder.iterdir() if file.name.endswith(".py")]
    modules = {file.name: ast.parse(file.read_text("utf-8")).body for file in files}
    classes = {
        node.name: node.body
        for body in modules.values()
        for node in body
        if isinstance(node, ast.ClassDef)
    }
    registered = _assigned(modules["__init__.py"], "METHODS")
    assert isinstance(registered, ast.Tuple)
    summaries = {}
    for method in (classes[ast.unparse(name)] for name in registered.elts):
        settings = classes[ast.unparse(_assigned(method, "Settings"))]
        name = ast.literal_eval(_assigned(settings, "name"))
        summaries[name] = ast.literal_eval(_assigned(method, "summary"))
    return summaries


def _assigned(body: list[ast.stmt], name: str) -> ast.expr:
    """The expression that a module or class assigns to ``name``."""
    for statement in body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=found)], value=ast.expr() as value)
                | ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value)
            ) if found == name:
                return value
    raise LookupError(f"nothing is assigned to {name}")


def _methods_table() -> Table:
    table = Table(box=None, show_header=False)
    for name, summary in read_summaries().items():
        table.add_row(Text(name, "bold"), Text(summary))
    return table


def _settings_table(name: str) -> Table:
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
            meaning = "; ".join(filter(None, [field.description, _choices(field.annotation)]))
            table.add_row(key, default, meaning)
    return table


def _choices(kind: Any) -> str:
    return " or ".join(map(repr, get_args(kind))) if get_origin(kind) is Literal else ""
