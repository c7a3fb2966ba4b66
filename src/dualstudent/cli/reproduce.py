"""``dualstudent reproduce``: repeat a table or figure of the paper."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column, Table
from rich.text import Text

from dualstudent.cli.arguments import Changes, Engine, On
from dualstudent.cli.console import console, print_line
from dualstudent.cli.results import print_comparison
from dualstudent.errors import UserError
from dualstudent.report.format import format_count, format_estimate

if TYPE_CHECKING:
    from dualstudent.experiments.reproduce import Request


class Budget(StrEnum):
    """The size of an experiment."""

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
        Budget, typer.Option(help="As large as in the paper, or small enough for a CPU.")
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
        bool, typer.Option("--list", help="List all experiments, or only WHAT, and their cost.")
    ] = False,
    on: On = Engine.local,
) -> None:
    """Repeat a table or figure of the paper, for example [bold]dualstudent reproduce table1[/bold].

    Finished runs are not repeated, stopped runs are continued.
    """
    changes = tuple(set_ or ())
    if list_:
        _print_costs(what, seeds, changes, only)
        return
    if what is None:
        raise UserError("name an experiment; 'dualstudent reproduce --list' lists them")
    from dualstudent.experiments.reproduce import Request

    _run(Request(what, budget.value, seeds, out, only, changes, on.value))


def _run(request: "Request") -> None:
    from dualstudent.experiments.reproduce import plan_request
    from dualstudent.experiments.reproduce import reproduce as run_experiment
    from dualstudent.progress import show_progress

    planned = plan_request(request)
    experiment = planned.experiment
    print_line(console, f"{experiment.place}: {experiment.title}")
    print_line(console, f"{format_count(len(planned.runs()), 'run')} in {request.runs_folder}")
    for difference in planned.differences:
        print_line(console, difference)
    with show_progress(console, unit="epochs") as progress:
        made = run_experiment(request, planned, progress.make_callback(experiment.name))
    print_comparison(experiment.title, made.table, f"Files in {made.folder}")


def _print_costs(what: str | None, seeds: int | None, changes: tuple[str, ...], only: str) -> None:
    from dualstudent.experiments.listing import list_costs
    from dualstudent.progress import show_progress

    with show_progress(console, unit="recipes measured") as progress:
        callback = progress.make_callback("a few steps each")
        costs = list_costs(what, seeds, changes, only, callback)
    table = Table(Column("what", no_wrap=True), "", "budget", "runs", "steps", "about")
    for number, cost in enumerate(costs):
        is_new = number == 0 or cost.name != costs[number - 1].name
        names = (cost.name, cost.title) if is_new else ("", "")
        table.add_row(
            *map(Text, names),  # may look like markup
            cost.budget,
            str(cost.runs),
            f"{cost.steps:,}",
            format_estimate(cost.seconds),
            end_section=not is_new,
        )
    console.print(table)
