"""Comparing methods: runs what is missing, and writes table, figures and page."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from dualstudent.errors import RunsFailed, UserError
from dualstudent.experiments.baselines import Record, measure_baselines
from dualstudent.experiments.comparison import Comparison, plan_comparison
from dualstudent.experiments.comparison_table import (
    build_comparison_table,
    find_part,
    write_scores,
)
from dualstudent.experiments.figures.comparison import draw_comparison
from dualstudent.experiments.page import Heading, write_page
from dualstudent.experiments.request import ComparisonRequest, Equal
from dualstudent.experiments.results import FinishedRuns, read_headline
from dualstudent.experiments.rows import CEILING
from dualstudent.experiments.schema import Cell
from dualstudent.experiments.scores import Score, compute_scores
from dualstudent.experiments.table import ComparisonTable
from dualstudent.grid import Where, run_grid
from dualstudent.parallel import Progress
from dualstudent.report.format import format_count
from dualstudent.report.style import save_picture
from dualstudent.signals import Interrupted
from dualstudent.training.run import Run

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class ComparedMethods:
    """The results of a comparison.

    Attributes:
        folder: with ``table.md``, ``table.csv``, ``runs.csv``, the pictures and ``index.html``.
        table: errors and differences as text.
        records: one per run: its method, labels, seeds, error and costs.
    """

    folder: Path
    table: ComparisonTable
    records: list[Record]


def compare(
    methods: Sequence[str],
    recipe: str | Path | None = None,
    *,
    data: str | Path | None = None,
    labels: Sequence[int | str] = (),
    seeds: int = 5,
    initial_states: int = 1,
    equal: Equal = "steps",
    changes: Sequence[str] = (),
    folder: str | Path | None = None,
    progress: Progress | None = None,
    baselines: bool = False,
    ceiling: bool = False,
    on: Where = "local",
) -> "DataFrame":
    """Compare methods on the same labels, over several draws of labels.

    Writes the table, its figures and a page into ``folder``. The same call continues after an
    interruption, and finished runs are never repeated; methods, labels and seeds can be added.

    Args:
        methods: names of the methods, or methods with settings of their own, such as
            ``"fixmatch:pseudo_label_threshold=0.8"``.
        recipe: name or path of the recipe that all share; its section ``method`` holds for the
            method that it names, the others start from their own defaults.
        data: own images instead of a recipe: a folder or a table. A recipe is chosen for each
            method, with the views, learning rate and weights that suit it.
        labels: numbers of labels; default: that of the recipe.
        seeds: number of draws of labels.
        initial_states: number of runs per draw, with other weights, order and views.
        equal: ``"steps"``, or ``"time"`` for about the time of the first method.
        changes: ``"key=value"`` settings of every run; ``method.…`` where a method has it.
        folder: of the results; default: ``runs/compare/NAME``.
        progress: is told how many epochs of all runs are done.
        baselines: also measure classifiers of scikit-learn, on the same labels and test images.
        ceiling: also train on all labels, as a reference ("all labels"), if they are known.
        on: where the runs are trained; see :func:`~dualstudent.run_grid`.

    Returns:
        One row per run: method, labels, split_seed (of the labels), seed (of all else), error in
        percent, seconds, steps, epochs (both 0 for baselines) and run (its folder or file).

    Raises:
        UserError: if something does not fit together; nothing has been trained.
        Interrupted: after Ctrl-C, SIGTERM or SIGHUP.

    Example:
        >>> runs = compare(["dual-student", "supervised"], "demo", seeds=3)  # doctest: +SKIP
        >>> runs.groupby("method").error.mean()  # doctest: +SKIP
    """
    try:
        from pandas import DataFrame
    except ImportError as error:
        raise UserError(
            "compare returns a DataFrame: install pandas (pip install pandas)"
        ) from error
    request = ComparisonRequest(
        tuple(dict.fromkeys(methods)),
        None if recipe is None else str(recipe),
        None if data is None else Path(data),
        tuple(dict.fromkeys(labels)),
        seeds,
        initial_states,
        equal,
        tuple(changes),
        None if folder is None else Path(folder),
        baselines,
        ceiling,
        on,
    )
    return DataFrame(run_comparison(plan_comparison(request), progress).records)


def run_comparison(comparison: Comparison, progress: Progress | None = None) -> ComparedMethods:
    """Run what is missing, and write table, figures and page.

    Args:
        comparison: from :func:`~dualstudent.experiments.comparison.plan_comparison`.
        progress: is told how many epochs of all runs are done.

    Raises:
        Interrupted: after Ctrl-C, SIGTERM or SIGHUP; its message has the command to continue.
        UserError: if runs failed; table and page show the methods of which all runs are finished.
    """
    request, failed = comparison.request, None
    comparison.save()
    try:
        baselines = measure_baselines(comparison) if request.baselines else {}
        run_grid(comparison.runs(), request.runs_folder, progress, on=request.on)
    except Interrupted as stop:
        raise Interrupted(stop.number, stop.done, request.command) from stop
    except RunsFailed as error:
        failed = error
    runs = _find_finished(comparison)
    if failed and not runs:
        raise failed
    table = _write_results(comparison, runs, baselines)
    # All columns share the runs with all labels; each is one record.
    names = {run: cell.row for cell, of_cell in runs.items() for run in of_cell}
    records = [_make_record(name, run) for run, name in names.items()]
    records += [record for of_cell in baselines.values() for record in of_cell]
    _write_records(request.folder / "runs.csv", records)
    if failed:
        page = request.folder / "index.html"
        raise UserError(f"{failed}; the methods without a failure are in {page}") from failed
    return ComparedMethods(request.folder, table, records)


def _find_finished(comparison: Comparison) -> FinishedRuns:
    """The runs of each cell, without cells of which a run failed."""
    request = comparison.request
    runs = {
        cell: [
            Run(request.runs_folder / name, recipe.imports)
            for name, recipe in comparison.runs_of(cell).items()
        ]
        for cell in comparison.recipes
    }
    whole = {cell: each for cell, each in runs.items() if all(r.result.is_file() for r in each)}
    compared = {cell.column for cell in whole if cell.row != CEILING}
    return {cell: each for cell, each in whole.items() if cell.column in compared}


def _write_results(
    comparison: Comparison, runs: FinishedRuns, baselines: Mapping[Cell, list[Record]]
) -> ComparisonTable:
    request = comparison.request
    others = [_make_score(cell, records) for cell, records in baselines.items()]
    scores = compute_scores(runs, request.initial_states, others, references={CEILING})
    table = build_comparison_table(comparison, runs, scores)
    (request.folder / "table.md").write_text(table.to_markdown(), "utf-8")
    write_scores(request.folder / "table.csv", scores)
    figures = draw_comparison(runs, find_part(comparison))
    for name, figure in figures.items():
        save_picture(figure, request.folder / name)
    methods = {cell.row for cell in runs} - {CEILING}
    title = f"{format_count(len(methods), 'method')} compared on {request.name}"
    rows = dict.fromkeys(score.cell.row for score in scores)
    heading = Heading(title, title, ", ".join(rows), "Errors and differences")
    write_page(request.folder / "index.html", heading, table, figures)
    return table


def _make_score(cell: Cell, records: Sequence[Record]) -> Score:
    errors = [[record["error"]] for record in records]
    return Score(cell, errors, fmean(record["seconds"] for record in records), steps=0)


def _make_record(name: str, run: Run) -> Record:
    recipe, result = run.read_recipe(), run.read_result()
    return {
        "method": name,
        "labels": recipe.data.labels,
        "split_seed": recipe.data.split_seed,
        "seed": recipe.seed,
        "error": read_headline(run, "error"),
        "seconds": result["seconds"],
        "steps": result["steps"],
        "epochs": result["epochs"],
        "run": str(run.folder),
    }


def _write_records(path: Path, records: Sequence[Record]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
