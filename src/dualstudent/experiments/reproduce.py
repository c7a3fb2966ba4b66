"""One command for an experiment: its runs, its table, its pictures."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dualstudent.cli.progress import progress_on
from dualstudent.data.prepare import prepare
from dualstudent.errors import UserError, refuse
from dualstudent.experiments.figures import draw_figures
from dualstudent.experiments.finished import FinishedRuns, finished_runs
from dualstudent.experiments.page import write_page
from dualstudent.experiments.plan import Plan, plan
from dualstudent.experiments.reading import load_experiment
from dualstudent.experiments.schema import BudgetName
from dualstudent.experiments.table import ComparisonTable, comparison_table, write_csv
from dualstudent.grid import run_grid
from dualstudent.recipes.schema import Recipe
from dualstudent.report.line import print_line
from dualstudent.report.style import save_picture
from dualstudent.report.tables import format_count
from dualstudent.signals import Interrupted
from dualstudent.training.run import Run


@dataclass(frozen=True)
class Request:
    """What the user asked for.

    Attributes:
        what: name of an experiment, or path of one's file.
        budget: at which size.
        seeds: runs of each cell; None: as the experiment says.
        out: folder; the runs go to ``runs`` in it, which all experiments of a budget share.
        only: run only the cells in whose name this occurs.
        changes: ``"key=value"`` each, of every run.
    """

    what: str
    budget: BudgetName = "full"
    seeds: int | None = None
    out: Path | None = None
    only: str = ""
    changes: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Where everything goes."""
        return self.out or Path("runs/reproduce") / self.budget

    @property
    def command(self) -> str:
        """That asks for the same."""
        words = ["dualstudent", "reproduce", self.what, "--budget", self.budget]
        words += ["--seeds", str(self.seeds)] if self.seeds else []
        words += ["--out", str(self.out)] if self.out else []
        words += ["--only", self.only] if self.only else []
        words += [word for change in self.changes for word in ("--set", change)]
        return shlex.join(words)


def reproduce(request: Request, console: Console) -> Path:
    """Run what has not been run, and write the table and the pictures of an experiment.

    Args:
        request: what, and how large.
        console: where progress and the table go.

    Returns:
        The folder with ``table.md``, ``table.csv``, the pictures and ``index.html``.

    Raises:
        UserError: if data are missing; then nothing has been run.
        Interrupted: after Ctrl-C, SIGTERM or SIGHUP; the command that continues is in its message.
    """
    experiment = load_experiment(request.what)
    planned = plan(experiment, request.budget, request.seeds, request.changes, request.only)
    wanted = planned.runs()
    runs_folder = request.folder / "runs"
    check_data(wanted, runs_folder)
    how_many = format_count(len(wanted), "run")
    print_line(console, f"{experiment.place}: {experiment.title}")
    print_line(console, f"{how_many} in {runs_folder}")
    for difference in planned.differences:
        print_line(console, difference)
    finished_runs(planned, runs_folder)  # what is wrong with them is said before a long training
    try:
        with progress_on(console, unit="epochs") as progress:
            run_grid(wanted, runs_folder, progress.observer(experiment.name))
    except Interrupted as stop:
        raise Interrupted(stop.number, stop.done, request.command) from stop
    folder = request.folder / planned.name
    table = write_results(planned, finished_runs(planned, runs_folder), request.command, folder)
    console.print(_shown(table, experiment.title))
    for sentence in (*table.order, *table.notes, f"Files in {folder}"):
        print_line(console, sentence)
    return folder


def check_data(recipes: Mapping[str, Recipe], runs_folder: Path) -> None:
    """Load all data that unfinished runs need, so that what each set lacks is said at once."""
    seen, missing = [], []
    for name, recipe in recipes.items():
        data = recipe.data.model_copy(update={"labels": "all"})
        if data not in seen and not Run(runs_folder / name).result.is_file():
            seen.append(data)
            try:
                prepare(data, recipe.seed)
            except UserError as error:
                missing.append(str(error))
    refuse(dict.fromkeys(missing))


def write_results(planned: Plan, runs: FinishedRuns, command: str, folder: Path) -> ComparisonTable:
    """Write table, pictures and page of what has been run."""
    folder.mkdir(parents=True, exist_ok=True)
    table = comparison_table(planned, runs, command)
    (folder / "table.md").write_text(table.to_markdown(), "utf-8")
    write_csv(folder / "table.csv", planned, runs)
    figures = draw_figures(planned.experiment, runs, " ".join(planned.differences))
    for name, figure in figures.items():
        save_picture(figure, folder / name)
    write_page(folder / "index.html", planned.experiment, table, figures)
    return table


def _shown(table: ComparisonTable, title: str) -> Table:
    shown = Table(*table.columns, title=Text(title), title_justify="left")
    for row in table.rows:
        shown.add_row(*map(Text, row))  # a name may look like markup
    return shown
