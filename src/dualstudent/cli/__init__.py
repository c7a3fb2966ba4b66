"""The command line: a file per group of commands, and a line here per command.

Heavy imports wait until a command needs them, so that help is instant.
"""

import warnings
from typing import Annotated

import typer

from dualstudent.cli.listing import methods, recipes_app
from dualstudent.cli.looking import check
from dualstudent.cli.researching import doctor, reproduce
from dualstudent.cli.running import demo, evaluate, resume, train
from dualstudent.cli.speaking import run_command, say
from dualstudent.cli.using import export, label, predict, report

__all__ = ["app", "main", "run_command"]

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
for command in (  # in the order of the help
    demo,
    check,
    train,
    resume,
    evaluate,
    report,
    predict,
    label,
    export,
    reproduce,
    doctor,
    methods,
):
    app.command()(command)
app.add_typer(recipes_app, name="recipes")


def main() -> None:
    """Entry point: a user's mistake is one line and exit code 2, never a traceback."""
    warnings.showwarning = lambda message, *_, **__: say("warning", "yellow", str(message))
    run_command(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"dualstudent {version('dualstudent')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_show_version, help="Show it and exit."),
    ] = False,
) -> None:
    """Train image classifiers from a few labels and many unlabeled images."""
