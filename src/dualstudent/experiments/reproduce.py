"""Running an experiment and writing its table, figures and page."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dualstudent.data.prepare import prepare
from dualstudent.errors import UserError, raise_problems
from dualstudent.experiments.figures import draw_figures
from dualstudent.experiments.page import make_heading, write_page
from dualstudent.experiments.plan import Plan, plan
from dualstudent.experiments.reading import load_experiment
from dualstudent.experiments.results import FinishedRuns, find_finished_runs
from dualstudent.experiments.schema import BudgetName
from dualstudent.experiments.table import ComparisonTable, build_table, write_csv
from dualstudent.grid import Where, run_grid
from dualstudent.parallel import Progress
from dualstudent.recipes.schema import Recipe
from dualstudent.report.style import save_picture
from dualstudent.signals import Interrupted
from dualstudent.training.run import Run


@dataclass(frozen=True)
class Request:
    """What the user asked for.

    Attributes:
        what: name of an experiment, or path of its file.
        budget: its size.
        seeds: number of runs per cell; None: that of the experiment.
        out: folder of the results; all experiments of a budget share its subfolder ``runs``.
        only: run only cells whose name contains this text.
        changes: ``"key=value"`` settings of every run.
        on: where the runs are trained.
    """

    what: str
    budget: BudgetName = "full"
    seeds: int | None = None
    out: Path | None = None
    only: str = ""
    changes: tuple[str, ...] = ()
    on: Where = "local"

    @property
    def folder(self) -> Path:
        """Folder of the results."""
        return self.out or Path("runs/reproduce") / self.budget

    @property
    def runs_folder(self) -> Path:
        """Folder of the runs."""
        return self.folder / "runs"

    @property
    def command(self) -> str:
        """The command that makes this request."""
        words = ["dualstudent", "reproduce", self.what, "--budget", self.budget]
        words += ["--seeds", str(self.seeds)] if self.seeds else []
        words += ["--out", str(self.out)] if self.out else []
        words += ["--only", self.only] if self.only else []
        words += [word for change in self.changes for word in ("--set", change)]
        words += ["--on", self.on] if self.on != "local" else []
        return shlex.join(words)


@dataclass(frozen=True)
class Reproduction:
    """The results of an experiment.

    Attributes:
        folder: with ``table.md``, ``table.csv``, the pictures and ``index.html``.
        table: paper and measured values side by side.
    """

    folder: Path
    table: ComparisonTable


def plan_request(request: Request) -> Plan:
    """Plan the runs; checks data and finished runs before a long training.

    Raises:
        UserError: if data are missing, or a finished run was made by another recipe.
    """
    experiment = load_experiment(request.what)
    planned = plan(experiment, request.budget, request.seeds, request.changes, request.only)
    _check_data(planned.runs(), request.runs_folder)
    find_finished_runs(planned, request.runs_folder)
    return planned


def reproduce(request: Request, planned: Plan, progress: Progress | None = None) -> Reproduction:
    """Run what is missing, and write table, figures and page of an experiment.

    Args:
        request: of the user.
        planned: from :func:`plan_request`.
        progress: is told how many epochs of all runs are done.

    Raises:
        Interrupted: after Ctrl-C, SIGTERM or SIGHUP; its message has the command to continue.
    """
    try:
        run_grid(planned.runs(), request.runs_folder, progress, on=request.on)
    except Interrupted as stop:
        raise Interrupted(stop.number, stop.done, request.command) from stop
    folder = request.folder / planned.name
    runs = find_finished_runs(planned, request.runs_folder)
    return Reproduction(folder, write_results(planned, runs, request.command, folder))


def _check_data(recipes: Mapping[str, Recipe], runs_folder: Path) -> None:
    """Load the data of all unfinished runs, so that all problems are reported at once."""
    seen, missing = [], []
    for name, recipe in recipes.items():
        data = recipe.data.model_copy(update={"labels": "all"})
        if data not in seen and not Run(runs_folder / name).result.is_file():
            seen.append(data)
            try:
                prepare(data, recipe.seed)
            except UserError as error:
                missing.append(str(error))
    raise_problems(dict.fromkeys(missing))


def write_results(planned: Plan, runs: FinishedRuns, command: str, folder: Path) -> ComparisonTable:
    """Write table, figures and page of the finished runs."""
    folder.mkdir(parents=True, exist_ok=True)
    table = build_table(planned, runs, command)
    (folder / "table.md").write_text(table.to_markdown(), "utf-8")
    write_csv(folder / "table.csv", planned, runs)
    figures = draw_figures(planned.experiment, runs, " ".join(planned.differences))
    for name, figure in figures.items():
        save_picture(figure, folder / name)
    write_page(folder / "index.html", make_heading(planned.experiment), table, figures)
    return table
