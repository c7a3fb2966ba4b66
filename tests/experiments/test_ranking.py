"""The order of rows, from errors written by hand."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from dualstudent.data.prepare import DataSettings
from dualstudent.experiments.plan import Plan, plan
from dualstudent.experiments.ranking import rank_rows, simulate_false_order
from dualstudent.experiments.reading import load_experiment
from dualstudent.experiments.results import find_finished_runs
from dualstudent.experiments.schema import BudgetName, Cell
from dualstudent.experiments.table import build_table
from tests.support.experiments import runs_of, small_plan


def orders(planned: Plan, folder: Path, errors: dict[tuple[str, str], list[float]]) -> list[str]:
    """The sentences, without the one that explains their signs."""
    for (row, column), of_cell in errors.items():
        runs_of(planned, Cell(row, column), folder, [[{"student": error}] for error in of_cell])
    sentences = rank_rows(planned, find_finished_runs(planned, folder))
    assert not sentences or sentences[-1].startswith("A > B: A is better than B")
    return sentences[:-1]


@pytest.mark.parametrize(
    ("supervised", "both", "order"),
    [
        ([11.0, 21.0], [10.0, 20.0], "both > supervised"),
        ([8.0, 8.0], [5.0, 10.0], "both ≈ supervised"),
        ([5.0, 10.0], [8.0, 8.0], "supervised ≈ both"),
        ([8.0, 9.0], [8.0, 9.0], "supervised ≈ both"),
    ],
)
def test_rows_that_differ_less_than_their_difference_does_tie(
    supervised: list[float], both: list[float], order: str, tmp_path: Path
) -> None:
    planned = small_plan(tmp_path)
    errors = {("supervised", "few"): supervised, ("both", "few"): both}
    expected = f"By test error in %, few: {order} (as stated, by means: both > supervised). "
    (said,) = orders(planned, tmp_path / "runs", errors)
    assert said.startswith(expected)
    table = build_table(planned, find_finished_runs(planned, tmp_path / "runs"), "")
    assert table.order[0] == said
    assert expected in table.to_markdown()


def test_the_highest_accuracy_is_first(tmp_path: Path) -> None:
    errors = {("supervised", "few"): [11.0, 21.0], ("both", "few"): [10.0, 20.0]}
    (order,) = orders(small_plan(tmp_path, measure="accuracy"), tmp_path / "runs", errors)
    assert order.startswith("By test accuracy in %, few: both > supervised (")
    assert "by means: supervised > both). " in order  # 12.5 and 10 as accuracies


@pytest.mark.parametrize("both", [[], [10.0]])
def test_a_row_without_all_seeds_is_not_compared(both: list[float], tmp_path: Path) -> None:
    errors = {("supervised", "few"): [11.0, 21.0], ("both", "few"): both}
    assert orders(small_plan(tmp_path), tmp_path / "runs", errors) == []


def test_one_seed_has_no_spread(tmp_path: Path) -> None:
    planned = plan(load_experiment("ablation"), "cpu", seeds=1)
    errors = {(row, "1k labels"): [error] for row, error in (("MT", 4.0), ("DS", 3.0))}
    assert orders(planned, tmp_path / "runs", errors) == []


def test_rows_are_compared_within_their_panel(tmp_path: Path) -> None:
    planned = plan(load_experiment("ablation"), "cpu", seeds=2)
    errors = {"MT": 4.0, "DS": 3.0, "DS + MT": 5.0, "ℒ_con": 2.0, "ℒ_cs": 1.0}
    both_seeds = {(row, "1k labels"): [error, error] for row, error in errors.items()}
    said = orders(planned, tmp_path / "runs", both_seeds)
    assert [sentences.split(". ")[0] for sentences in said] == [
        "By test accuracy in %, 1k labels (combined with Mean Teacher): DS > MT > DS + MT",
        # The run of Dual Student is in both.
        "By test accuracy in %, 1k labels (constraints): ℒ_cs > ℒ_con > ℒ_con + ℒ_sta",
    ]


@pytest.mark.parametrize("budget", ["full", "cpu"])
def test_data_sets_are_not_compared_with_each_other(budget: BudgetName, tmp_path: Path) -> None:
    planned = plan(load_experiment("table6"), budget, seeds=2)
    errors = {(cell.row, cell.column): [1.0, 2.0] for cell in planned.recipes}
    assert orders(planned, tmp_path / "runs", errors) == []


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_the_chance_of_two_rows_is_that_of_students_t(seeds: int) -> None:
    """The mean exceeds the deviation where √seeds · mean / deviation exceeds √seeds."""
    exact = 2 * scipy.stats.t.sf(np.sqrt(seeds), seeds - 1)
    assert simulate_false_order(2, seeds) == pytest.approx(exact, abs=0.01)


def test_the_chance_is_told_with_the_order(tmp_path: Path) -> None:
    errors = {("supervised", "few"): [8.0, 8.0], ("both", "few"): [5.0, 10.0]}
    (order,) = orders(small_plan(tmp_path), tmp_path / "runs", errors)
    chance = 100 * simulate_false_order(rows=2, seeds=2)
    assert order.endswith(
        f". Were all 2 equal, chance would still show a > in {chance:.0f} % of cases."
    )


@pytest.mark.parametrize(
    ("target", "validation", "compared"),
    [
        (None, 0, False),  # each row is tested on its own folder
        (Path("sketches"), 0, True),  # both on the target
        (Path("sketches"), 0.2, False),  # each on its own source again
    ],
)
def test_rows_on_own_images_are_compared_if_they_are_tested_on_the_same(
    target: Path | None, validation: float, compared: bool, tmp_path: Path
) -> None:
    planned = small_plan(tmp_path)
    sources = {Cell("supervised", "few"): Path("photos"), Cell("both", "few"): Path("scans")}
    recipes = {
        cell: planned.recipes[cell].model_copy(
            update={"data": DataSettings(path=path, target_path=target, validation=validation)}
        )
        for cell, path in sources.items()
    }
    errors = {(cell.row, cell.column): [11.0, 21.0] for cell in sources}
    changed = dataclasses.replace(planned, recipes=recipes)
    assert len(orders(changed, tmp_path / "runs", errors)) == compared
