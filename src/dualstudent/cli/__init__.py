"""The command line: one file per command, listed here in the order of the help.

Commands import heavy packages only when they need them, so that help and lists are fast.
"""

import sys
import warnings
from typing import Annotated, Any

import typer

from dualstudent.cli import (
    check,
    compare,
    demo,
    doctor,
    evaluate,
    export,
    label,
    methods,
    predict,
    recipes,
    report,
    reproduce,
    resume,
    teach,
    train,
    verify,
)
from dualstudent.cli.console import print_message, run_command
from dualstudent.errors import UserError

__all__ = ["app", "main", "run_command"]

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
for command in (
    demo.demo,
    check.check,
    train.train,
    compare.compare,
    resume.resume,
    evaluate.evaluate,
    report.report,
    predict.predict,
    label.label,
    teach.teach,
    export.export,
    reproduce.reproduce,
    doctor.doctor,
    methods.methods,
    verify.verify,
):
    app.command()(command)
app.add_typer(recipes.app, name="recipes")


_WrongUsage: Any = typer.BadParameter.mro()[1]  # typer has no public name for it


def main() -> None:
    """Entry point: a user's mistake is one line and exit code 2, never a traceback."""
    warnings.showwarning = lambda message, *_, **__: print_message("warning", "yellow", message)
    run_command(_run_app)


def _run_app() -> None:
    """Run the command of ``sys.argv``; typer's own message would take several lines."""
    try:
        sys.exit(app(standalone_mode=False))
    except _WrongUsage as error:
        text = str(error.format_message()).replace("\n\t", " ").rstrip(".")
        if not text:  # without arguments, typer has shown the help
            sys.exit(2)
        command = error.ctx.command_path if error.ctx else "dualstudent"
        raise UserError(f"{text}; '{command} --help' shows what is right") from error


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"dualstudent {version('dualstudent')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Train image classifiers from a few labels and many unlabeled images."""
