"""``dualstudent compare``: methods side by side, on the same labels."""

from collections.abc import Sequence
from enum import StrEnum
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from dualstudent.cli.arguments import Changes, Engine, Imports, On
from dualstudent.cli.console import console, print_line
from dualstudent.report.format import format_count

if TYPE_CHECKING:
    from dualstudent.experiments.request import ComparisonRequest


_SHOWN = 6  # columns of the table: labels, method, error, difference, interval, p


class Equal(StrEnum):
    """What all methods have in common."""

    steps = "steps"
    time = "time"


def compare(
    recipe: Annotated[
        str | None, typer.Argument(help="Name of a recipe, or path of a .toml file.")
    ] = None,
    methods: Annotated[
        str,
        typer.Option(
            metavar="A,B,…",
            help="Methods; 'dualstudent methods' lists them. A:KEY=VALUE changes settings of one.",
        ),
    ] = "",
    seeds: Annotated[
        int, typer.Option(help="Draws of labels, the same for all methods; 5 or more, if you can.")
    ] = 5,
    labels: Annotated[
        str,
        typer.Option(
            metavar="N,M,…", help="Numbers of labels; default: as in the recipe, or all you have."
        ),
    ] = "",
    data: Annotated[
        Path | None, typer.Option(help="Own images instead of a recipe: a folder or a table.")
    ] = None,
    initial_states: Annotated[
        int, typer.Option(help="Runs for each draw, with other weights, order and views.")
    ] = 1,
    equal: Annotated[
        Equal, typer.Option(help="The same steps for all, or about the time of the first method.")
    ] = Equal.steps,
    baselines: Annotated[
        bool, typer.Option("--baselines", help="Add classifiers of scikit-learn; seconds each.")
    ] = False,
    ceiling: Annotated[
        bool, typer.Option("--ceiling", help="Add supervised learning from all labels.")
    ] = False,
    set_: Changes = None,
    imports: Imports = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the results; default: runs/compare/NAME.")
    ] = None,
    on: On = Engine.local,
) -> None:
    """Compare methods, for example [bold]dualstudent compare demo --methods vat,supervised[/bold].

    Ends with a table and a page: errors, differences to the best with intervals and p-values,
    learning curves, and accuracy against time. The same command continues after Ctrl-C.
    """
    from dualstudent.experiments.request import ComparisonRequest

    _run(
        ComparisonRequest(
            tuple(_split(methods)),
            recipe,
            data,
            tuple(int(n) if n.isdecimal() else n for n in _split(labels)),
            seeds,
            initial_states,
            equal.value,
            tuple(set_ or ()),
            out,
            baselines,
            ceiling,
            on.value,
            tuple(imports or ()),
        )
    )


def _split(text: str) -> list[str]:
    return list(dict.fromkeys(filter(None, (word.strip() for word in text.split(",")))))


def _run(request: "ComparisonRequest") -> None:
    from dualstudent.experiments.compare import run_comparison
    from dualstudent.experiments.comparison import plan_comparison
    from dualstudent.progress import show_progress

    with show_progress(console, unit="done") as progress:
        comparison = plan_comparison(request, progress.make_callback("preparing"))
    count = format_count(len(comparison.runs()), "run")
    print_line(console, f"{', '.join(request.methods)}: {count} in {request.runs_folder}")
    for remark in comparison.remarks:
        print_line(console, remark)
    with show_progress(console, unit="epochs") as progress:
        made = run_comparison(comparison, progress.make_callback("comparing"))
    for labels, rows in groupby(made.table.rows, key=itemgetter(0)):
        console.print(_build_table(f"{request.name}, {labels}", made.table.columns, list(rows)))
    for sentence in (*made.table.order, made.table.notes[0]):
        print_line(console, sentence)
    print_line(console, f"Page, with curves and how it was made: {made.folder / 'index.html'}")


def _build_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table that fits into 80 columns: errors and differences; the page has the rest."""
    table = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD)
    table.add_column("method", overflow="fold")
    for number in range(2, _SHOWN):
        # Headings may wrap, numbers may not: a long name of a method does.
        words = [*columns[number].split(), *(row[number] for row in rows)]
        table.add_column(columns[number], width=max(map(len, words)), justify="right")
    for row in rows:
        table.add_row(*map(Text, row[1:_SHOWN]))  # a name may look like markup
    return table
