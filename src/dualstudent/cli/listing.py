"""Commands that list what there is: methods, recipes."""

from typing import Annotated

import typer

from dualstudent.cli.speaking import console

recipes_app = typer.Typer(help="List and show the recipes that come with dualstudent.")


def methods(
    name: Annotated[str | None, typer.Argument(help="Show the settings of this method.")] = None,
) -> None:
    """List the methods, or show what can be set of one."""
    from dualstudent.report.tables import methods_table, settings_table

    console.print(methods_table() if name is None else settings_table(name))


@recipes_app.callback(invoke_without_command=True)
def recipes(context: typer.Context) -> None:
    """Without a sub-command: list the recipes."""
    if context.invoked_subcommand is None:
        list_recipes()


@recipes_app.command("list")
def list_recipes() -> None:
    """The recipes, a line each."""
    from rich.table import Table

    from dualstudent.recipes import load_recipe, recipe_names

    table = Table(box=None, show_header=False)
    for name in recipe_names():
        table.add_row(f"[bold]{name}[/bold]", load_recipe(name).description)
    console.print(table)


@recipes_app.command("show")
def show_recipe(
    name: Annotated[str, typer.Argument(help="Name of a recipe, or path of a .toml file.")],
    full: Annotated[
        bool, typer.Option("--full", help="Every setting, also those it does not state.")
    ] = False,
) -> None:
    """The text of a recipe, to read or to save and edit."""
    from dualstudent.recipes import load_recipe
    from dualstudent.recipes.reading import recipe_source, to_toml

    text = to_toml(load_recipe(name)) if full else recipe_source(name)
    typer.echo(text, nl=False)
