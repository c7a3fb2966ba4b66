"""The table against numbers worked out by hand, from runs written by hand."""

import csv
import json
from pathlib import Path

import pytest

from dualstudent.experiments.plan import plan
from dualstudent.experiments.reading import load_experiment
from dualstudent.experiments.results import find_finished_runs, read_chosen_on_test
from dualstudent.experiments.schema import Cell
from dualstudent.experiments.table import build_table, write_csv
from dualstudent.training.recorder import summarize_metrics
from tests.support.experiments import SMALL, runs_of, small_plan, write_without_values
from tests.support.made_runs import line, made_run, network


def test_paper_and_measured_stand_side_by_side(tmp_path: Path) -> None:
    planned, folder = small_plan(tmp_path), tmp_path / "runs"
    both = [[{"student1": 8.0, "student2": 30.0}, {"student1": 10.0, "student2": 12.0}]]
    both += [[{"student1": 50.0, "student2": 50.0}, {"student1": 14.0, "student2": 16.0}]]
    runs_of(planned, Cell("both", "few"), folder, both)
    runs_of(planned, Cell("supervised", "more"), folder, [[{"student": 7.0}]])
    table = build_table(planned, find_finished_runs(planned, folder), "the command")
    assert table.rows == [
        ["supervised", "few", "12.50 ± 0.50", "not run", "0", "not run"],
        ["supervised", "more", "7.25", "7.00", "1", "7.00"],
        # Last epochs: 11 and 15. Best of all: 8 and 14.
        ["both", "few", "10.00 ± 0.25 †", "13.00 ± 2.83", "2", "11.00 ± 4.24"],
    ]
    notes = "\n".join(table.notes)
    for expected in (
        "Table 0, at full size",
        "those of the seeds 0 to 1 that were run, at the last epoch",
        "† published by others",
        "too optimistic",
        "3 runs, 0:02:00 in all",
        "python 3.11.9, torch 2.13.0",
        "`the command`",
    ):
        assert expected in notes
    lines = table.to_markdown().splitlines()
    assert lines[4] == "| both | few | 10.00 ± 0.25 † | 13.00 ± 2.83 | 2 | 11.00 ± 4.24 |"
    assert {line.count("|") for line in lines[:5]} == {7}


def test_values_of_an_own_file_are_not_called_those_of_the_paper(tmp_path: Path) -> None:
    table = build_table(small_plan(tmp_path), {}, "")
    assert table.columns[2:4] == ["stated: test error in %", "measured: test error in %"]
    of_paper = build_table(plan(load_experiment("table1"), "full"), {}, "")
    assert of_paper.columns[2] == "paper: test error in %"


def test_a_column_without_any_value_is_left_out(tmp_path: Path) -> None:
    planned, folder = plan(load_experiment(write_without_values(tmp_path)), "full"), tmp_path / "of"
    runs_of(planned, Cell("supervised", "few"), folder, [[{"student": 9.0}]])
    table = build_table(planned, find_finished_runs(planned, folder), "")
    assert table.columns[2] == "measured: test error in %"
    assert table.rows[0] == ["supervised", "few", "9.00", "1", "9.00"]
    assert {len(row) for row in table.rows} == {len(table.columns)} == {5}


def test_accuracy_is_best_where_it_is_highest(tmp_path: Path) -> None:
    planned, folder = small_plan(tmp_path, measure="accuracy"), tmp_path / "runs"
    runs_of(planned, Cell("supervised", "few"), folder, [[{"student": 8.0}, {"student": 10.0}]])
    table = build_table(planned, find_finished_runs(planned, folder), "")
    assert table.rows[0][3:] == ["90.00", "1", "92.00"]
    assert table.columns[3] == "measured: test accuracy in %"


def test_the_best_is_looked_for_among_the_reported_networks(tmp_path: Path) -> None:
    """Of Imbalanced Student the weak network is reported; the strong one has fewer errors."""
    planned, folder = small_plan(tmp_path), tmp_path / "runs"
    cell, weak, strong = Cell("both", "few"), [8.0, 10.0], [3.0, 4.0]
    errors = [{"weak": w, "strong": s} for w, s in zip(weak, strong, strict=True)]
    runs_of(planned, cell, folder, [errors])
    (run,) = find_finished_runs(planned, folder)[cell]
    run.write_result(run.read_result() | {"headline": ["weak"]})
    assert build_table(planned, {cell: [run]}, "").rows[2][3:] == ["10.00", "1", "8.00"]
    summary = summarize_metrics(run.read_metrics(), ["weak"], seconds=1.0)
    assert (summary["error"], summary["chosen_on_test"]["error"]) == (10.0, 8.0)


def test_the_best_is_looked_for_in_the_last_stage(tmp_path: Path) -> None:
    """A network of an earlier stage may have the same name, but is not the result."""
    errors = (("labels", 2.0), ("both", 9.0), ("both", 10.0))
    metrics = [line(e, {"student": network(x)}, stage=s) for e, (s, x) in enumerate(errors, 1)]
    run = made_run(tmp_path / "run", metrics)
    assert run.read_result()["chosen_on_test"]["error"] == 9.0
    assert read_chosen_on_test(run, "error") == 9.0


def test_epochs_without_a_test_do_not_count(tmp_path: Path) -> None:
    planned, folder = small_plan(tmp_path), tmp_path / "runs"
    errors: list[dict[str, float]] = [{}, {"student": 9.0}, {}, {"student": 11.0}]
    runs_of(planned, Cell("supervised", "few"), folder, [errors])
    table = build_table(planned, find_finished_runs(planned, folder), "")
    assert table.rows[0][3:] == ["11.00", "1", "9.00"]


def test_the_small_budget_says_what_is_smaller(tmp_path: Path) -> None:
    planned = small_plan(tmp_path, "cpu")
    table = build_table(planned, {}, "")
    assert [row[:3] for row in table.rows] == [
        ["supervised", "more", "7.25"],
        ["both", "more", "–"],
    ]
    assert "Made smaller: two short epochs of small batches." in table.notes


def test_every_run_is_a_line_of_the_csv(tmp_path: Path) -> None:
    planned, folder = small_plan(tmp_path), tmp_path / "runs"
    runs_of(
        planned, Cell("both", "few"), folder, [[{"a": 8.0}, {"a": 10.0}], [{"a": 9.0}, {"a": 9.5}]]
    )
    write_csv(tmp_path / "table.csv", planned, find_finished_runs(planned, folder))
    with (tmp_path / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    figures = [(row["seed"], float(row["measured"]), float(row["chosen_on_test"])) for row in rows]
    assert figures == [("0", 10.0, 8.0), ("1", 9.5, 9.0)]
    assert {(row["row"], row["column"], row["paper"]) for row in rows} == {("both", "few", "10.00")}
    assert [row["run"] for row in rows] == list(planned.runs_of(Cell("both", "few")))


def test_a_column_may_measure_something_else(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(SMALL.replace('name = "more"', 'name = "more"\nmeasure = "top5_error"', 1))
    planned, folder = plan(load_experiment(path), "full"), tmp_path / "runs"
    cell = Cell("supervised", "more")
    runs_of(planned, cell, folder, [[{"student": 7.0}]])
    (run,) = find_finished_runs(planned, folder)[cell]
    figures = {"student": network(7.0, top5_error=1.25)}
    result = run.read_result() | {"networks": figures}
    del result["metrics_sha256"]
    run.metrics.write_text(json.dumps(line(1, figures)) + "\n")
    run.write_result(result)
    table = build_table(planned, {cell: [run]}, "")
    assert table.rows[1][3:] == pytest.approx(["1.25", "1", "1.25"])
