"""The table of RESULTS.md on the open settings of the adaptation, from the files in results/.

    python benchmarks/adaptation_beginnings.py

Accuracy wavers from epoch to epoch by some points, so that the last one says little: the table has
the mean of both students over the epochs 6 to 10, in which the constraints have their full weight.
"""

from collections.abc import Iterable
from pathlib import Path
from statistics import fmean

from dualstudent import Run
from tables import read_csv, write_table

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
RUNS = RESULTS / "reproduce"
FROM, TO = 6, 10
STATISTICS = ("as trained", "of noisy target images", "of clean target images")


def beginning(run: Path) -> list[float]:
    """Accuracies in %, of every student and epoch."""
    return [
        100 - network["error"]
        for record in Run(run).read_metrics()
        if FROM <= record["epoch"] <= TO
        for network in record["test"].values()
    ]


def row(name: str, accuracies: Iterable[float], tested: Iterable[dict[str, str]]) -> list[str]:
    clean = [each for each in tested if each["test images"] == "clean"]
    cells = [f"{fmean(accuracies):.1f}"]
    for statistics in STATISTICS:
        found = [float(each["accuracy"]) for each in clean if each["statistics"] == statistics]
        cells.append(f"{fmean(found):.1f}" if found else "")
    return [name, *cells]


def main() -> None:
    tested = read_csv(RESULTS / "how-it-is-tested.csv")
    rows = []
    for cell in read_csv(RUNS / "cpu" / "adaptation-settings" / "table.csv"):
        of_run = [each for each in tested if each["run"] == cell["run"]]
        rows.append(row(cell["row"], beginning(RUNS / "cpu" / "runs" / cell["run"]), of_run))
    for name, run in (
        ("As the recipe, seed 1 *", "dual-student-usps-mnist-all-72b46fba-seed1"),
        ("λ₁ = λ₂ = 10 *", "dual-student-usps-mnist-all-2cb06cfb-seed0"),
    ):
        rows.append(row(name, beginning(RUNS / "whole-map" / "runs" / run), []))
    columns = ["", f"epochs {FROM} to {TO}", *(f"epoch {TO}, statistics {s}" for s in STATISTICS)]
    write_table(RESULTS / "adaptation-beginnings.md", columns, rows)


if __name__ == "__main__":
    main()
