"""Commands for research: reproduce what the paper measured, doctor a method."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dualstudent.cli.arguments import Changes
from dualstudent.cli.speaking import console, say
from dualstudent.errors import UserError


class Budget(StrEnum):
    """How large an experiment is run."""

    full = "full"
    cpu = "cpu"


def reproduce(
    what: Annotated[
        str | None,
        typer.Argument(
            help="table1 to table6, ablation, coupling, domain-adaptation, stable-samples, or path "
            "of a .toml file that defines an experiment."
        ),
    ] = None,
    budget: Annotated[
        Budget, typer.Option(help="As large as in the paper, or so small that a CPU finishes it.")
    ] = Budget.full,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Runs of each cell; default: as in the paper.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder, for all experiments of a budget; default: runs/reproduce/…"),
    ] = None,
    only: Annotated[
        str, typer.Option(metavar="TEXT", help="Run only the cells whose name contains this.")
    ] = "",
    set_: Changes = None,
    list_: Annotated[
        bool, typer.Option("--list", help="What there is, or WHAT, and what it costs here.")
    ] = False,
) -> None:
    """Repeat a table or figure of the paper, for example [bold]dualstudent reproduce table1[/bold].

    Runs that are finished are not repeated, those that were stopped are continued.
    """
    if list_:
        from dualstudent.experiments.listing import list_experiments

        list_experiments(console, what, seeds, set_ or (), only)
        return
    if what is None:
        raise UserError("say what to reproduce; 'dualstudent reproduce --list' shows what there is")
    from dualstudent.experiments.reproduce import Request
    from dualstudent.experiments.reproduce import reproduce as run_experiment

    run_experiment(Request(what, budget.value, seeds, out, only, tuple(set_ or ())), console)


def doctor(
    recipe: Annotated[
        str, typer.Argument(help="Name of a recipe, or path of a .toml file.")
    ] = "demo",
    set_: Changes = None,
    steps: Annotated[
        int, typer.Option(min=1, help="How many to try until every loss term is more than 0.")
    ] = 50,
) -> None:
    """Check in a few real steps that every loss term reaches its own student and nothing else.

    Shows the gradient of each term, part by part. Exit code 1 if something is wrong.
    """
    from dualstudent.doctor import examine
    from dualstudent.doctor.diagnosis import reach_table
    from dualstudent.recipes import load_recipe

    chosen = load_recipe(recipe, set_ or ())
    diagnosis = examine(chosen, steps)
    console.print(reach_table(diagnosis, f"{chosen.method.name}: norm of each term's gradient"))
    if diagnosis.off:
        console.print(
            f"off: {', '.join(diagnosis.off)}: exactly 0 in all {diagnosis.steps} steps, "
            "by weight or for lack of samples (then try more --steps)"
        )
    for finding in diagnosis.findings:
        say("wrong", "red", finding)
    if not diagnosis.healthy:
        raise typer.Exit(1)
    console.print(f"healthy in {diagnosis.steps} steps; watched: {', '.join(diagnosis.networks)}")
