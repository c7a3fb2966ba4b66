"""The order of rows, from errors written by hand."""

from pathlib import Path

import pytest

from dualstudent.experiments.order import order_notes
from dualstudent.experiments.plan import Plan, plan
from dualstudent.experiments.reading import load_experiment
from dualstudent.experiments.reproduce import finished_runs
from dualstudent.experiments.schema import Cell
from tests.experiments.test_table import runs_of, small_plan


def write_errors(planned: Plan, folder: Path, errors: dict[Cell, list[float]]) -> None:
    for cell, of_cell in errors.items():
        runs_of(planned, cell, folder, [[{"student": error}] for error in of_cell])


@pytest.mark.parametrize(
    ("supervised", "both", "verdict"),
    [
        ([11.0, 21.0], [10.0, 20.0], "both, supervised; both is ahead"),
        ([8.0, 8.0], [5.0, 10.0], "both, supervised; ties with both: supervised"),
        ([5.0, 10.0], [8.0, 8.0], "supervised, both; ties with supervised: both"),
    ],
)
def test_rows_that_differ_less_than_the_seeds_tie(
    supervised: list[float], both: list[float], verdict: str, tmp_path: Path
) -> None:
    planned, folder = small_plan(tmp_path), tmp_path / "runs"
    write_errors(
        planned, folder, {Cell("supervised", "few"): supervised, Cell("both", "few"): both}
    )
    (note, rule) = order_notes(planned, finished_runs(planned, folder))
    assert note == f"few, best first: {verdict}. In the paper: both, supervised."
    assert rule.startswith("A row ties with another if")


def test_the_highest_accuracy_is_first(tmp_path: Path) -> None:
    planned, folder = small_plan(tmp_path, measure="accuracy"), tmp_path / "runs"
    errors = {Cell("supervised", "few"): [11.0, 21.0], Cell("both", "few"): [10.0, 20.0]}
    write_errors(planned, folder, errors)
    (note, _) = order_notes(planned, finished_runs(planned, folder))
    assert note.startswith("few, best first: both, supervised; both is ahead.")
    assert note.endswith("In the paper: supervised, both.")  # as if errors were accuracies


def test_one_seed_or_one_row_has_no_order(tmp_path: Path) -> None:
    planned, folder = small_plan(tmp_path), tmp_path / "runs"
    write_errors(planned, folder, {Cell("supervised", "few"): [11.0, 21.0]})
    assert order_notes(planned, finished_runs(planned, folder)) == []
    write_errors(planned, folder, {Cell("both", "few"): [11.0]})
    assert order_notes(planned, finished_runs(planned, folder)) == []


def test_rows_are_compared_within_their_panel(tmp_path: Path) -> None:
    planned, folder = plan(load_experiment("ablation"), "cpu", seeds=2), tmp_path / "runs"
    errors = {"MT": 4.0, "DS": 3.0, "DS + MT": 5.0, "ℒ_con": 2.0, "ℒ_cs": 1.0}
    write_errors(planned, folder, {Cell(row, "1k labels"): [e, e] for row, e in errors.items()})
    left, right, _ = order_notes(planned, finished_runs(planned, folder))
    assert (
        left == "1k labels, combined with Mean Teacher, best first: DS, MT, DS + MT; DS is ahead."
    )
    # The run of Dual Student is in both.
    assert right == "1k labels, constraints, best first: ℒ_cs, ℒ_con, ℒ_con + ℒ_sta; ℒ_cs is ahead."
