"""Running an experiment: its runs, its table, its pictures."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

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
from dualstudent.parallel import Progress
from dualstudent.recipes.schema import Recipe
from dualstudent.report.style import save_picture
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
    def runs_folder(self) -> Path:
        """Where the runs go."""
        return self.folder / "runs"

    @property
    def command(self) -> str:
        """The command that asks for the same."""
        words = ["dualstudent", "reproduce", self.what, "--budget", self.budget]
        words += ["--seeds", str(self.seeds)] if self.seeds else []
        words += ["--out", str(self.out)] if self.out else []
        words += ["--only", self.only] if self.only else []
        words += [word for change in self.changes for word in ("--set", change)]
        return shlex.join(words)


@dataclass(frozen=True)
class Reproduction:
    """What an experiment led to.

    Attributes:
        folder: with ``table.md``, ``table.csv``, the pictures and ``index.html``.
        table: paper and measured values side by side.
    """

    folder: Path
    table: ComparisonTable


def plan_request(request: Request) -> Plan:
    """What is to be run, with data and finished runs checked before a long training.

    Raises:
        UserError: if data are missing, or a finished run is of another recipe.
    """
    experiment = load_experiment(request.what)
    planned = plan(experiment, request.budget, request.seeds, request.changes, request.only)
    _check_data(planned.runs(), request.runs_folder)
    finished_runs(planned, request.runs_folder)
    return planned


def reproduce(request: Request, planned: Plan, progress: Progress | None = None) -> Reproduction:
    """Run what has not been run, and write the table and the pictures of an experiment.

    Args:
        request: what, and how large.
        planned: of :func:`plan_request`.
        progress: is told how many epochs of all runs are done.

    Raises:
        Interrupted: after Ctrl-C, SIGTERM or SIGHUP; the command that continues is in its message.
    """
    try:
        run_grid(planned.runs(), request.runs_folder, progress)
    except Interrupted as stop:
        raise Interrupted(stop.number, stop.done, request.command) from stop
    folder = request.folder / planned.name
    runs = finished_runs(planned, request.runs_folder)
    return Reproduction(folder, write_results(planned, runs, request.command, folder))


def _check_data(recipes: Mapping[str, Recipe], runs_folder: Path) -> None:
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
