"""``dualstudent recipes``: list the recipes that come with the package, or show one."""

import tomllib
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from dualstudent.cli.arguments import Imports
from dualstudent.cli.console import console
from dualstudent.recipes.files import list_recipe_names, read_recipe_source

app = typer.Typer(help="List and show the recipes that come with dualstudent.")


@app.callback(invoke_without_command=True)
def recipes(context: typer.Context) -> None:
    """Without a sub-command: list the recipes."""
    if context.invoked_subcommand is None:
        list_recipes()


@app.command("list")
def list_recipes() -> None:
    """List the recipes, a line each."""
    table = Table(box=None, show_header=False)
    for name, description in read_descriptions().items():
        table.add_row(Text(name, "bold"), Text(description))
    console.print(table)


@app.command("show")
def show_recipe(
    name: Annotated[str, typer.Argument(help="Name of a recipe, or path of a .toml file.")],
    full: Annotated[
        bool, typer.Option("--full", help="Every setting, also those at their default.")
    ] = False,
    imports: Imports = None,
) -> None:
    """Print the text of a recipe, to read or to save and edit."""
    if full:
        from dualstudent.recipes.reading import load_recipe, to_toml

        text = to_toml(load_recipe(name, imports=imports or ()))
    else:
        text = read_recipe_source(name)
    typer.echo(text, nl=False)


def read_descriptions() -> dict[str, str]:
    """Name → description of every recipe, read from the files alone.

    Checking them would load torch, which takes seconds.

    Example:
        >>> read_descriptions()["demo"]
        'Dual Student on 50 labels of the bundled MNIST digits, in about a minute'
    """
    return {
        name: tomllib.loads(read_recipe_source(name))["description"] for name in list_recipe_names()
    }
