"""The numbers of the paper against a second transcription of its tables."""

import re

import pytest

from dualstudent.experiments.reading import list_experiments, load_experiment
from dualstudent.experiments.schema import Cell, PaperValue

# Mean, spread and † of every cell, column by column, as the source of the paper has them.
TABLES = {
    "table1": """
        Π | 31.65 1.20 † | 17.57 0.44 † | 12.36 0.31 | 5.56 0.10
        Π + SN | 21.23 1.27 | 14.65 0.31 | 11.00 0.13 | 5.19 0.14
        Temp | 23.31 1.01 † | 15.64 0.39 † | 12.16 0.24 | 5.60 0.10
        Temp + SN | 18.41 0.52 | 13.64 0.32 | 10.93 0.34 | 5.20 0.14
        MT | 18.78 0.31 † | 14.43 0.20 † | 11.41 0.27 † | 5.98 0.21 †
        MT + FSWA | 16.84 0.62 | 12.24 0.31 | 9.86 0.27 | 5.14 0.07
        CS | 17.38 0.52 | 13.76 0.27 | 10.24 0.20 | 5.18 0.11
        DS | 15.74 0.45 | 11.47 0.14 | 9.65 0.12 | 5.20 0.03
        MT + FSWA (1200) | 15.58 0.12 | 11.02 0.23 | 9.05 0.21 | 4.73 0.18
        Deep CT (600) | none | none | 9.03 0.18 | none
        DS (600) | 14.17 0.38 | 10.72 0.19 | 8.89 0.09 | 4.66 0.07
    """,
    "table2": """
        Temp | 38.65 0.51 | 26.30 0.15
        Π | 39.19 0.36 | 26.32 0.04
        Π + FSWA | 35.14 0.71 | 22.00 0.21
        MT | 35.96 0.77 † | 23.37 0.16 †
        MT + FSWA | 34.10 0.31 | 21.84 0.12
        DS | 33.08 0.27 | 21.90 0.14
        MT + FSWA (1200) | 33.62 0.54 | 21.52 0.12
        Deep CT (600) | 34.63 0.14 | none
        DS (480) | 32.77 0.24 | 21.79 0.11
    """,
    "table3": """
        Supervised | 27.77 3.18 | 16.88 1.30
        MT | 4.35 0.50 | 4.18 0.27
        DS | 4.24 0.10 | 3.96 0.15
    """,
    "table4": """
        Supervised | 42.15 0.09 | 19.76 0.11
        MT | 37.83 0.12 | 16.65 0.08
        DS | 36.48 0.05 | 16.42 0.07
    """,
    "table5": """
        DS | 15.74 0.45 | 33.08 0.27
        MS (4 models) | 14.97 0.36 | 32.89 0.32
        MS (8 models) | 14.77 0.33 | 32.83 0.28
        IS (3.53M params) | 13.43 0.24 | 32.59 0.27
        IS (11.6M params) | 12.39 0.26 | 31.56 0.22
    """,
    "table6": """
        CIFAR-10, 1k labels | 16.49 | 16.12 | 15.92 | 15.74
        CIFAR-100, 10k labels | 33.67 | 33.08 | 33.23 | 33.54
    """,
}
NOT_IN_THE_PAPER = {"table1": {"Supervised"}}  # runs in the cpu budget only


@pytest.mark.parametrize("name", TABLES)
def test_every_cell_has_the_value_of_the_paper(name: str) -> None:
    experiment = load_experiment(name)
    lines = [line.strip() for line in TABLES[name].strip().splitlines()]
    rows = {row: values for row, *values in (re.split(r" *\| *", line) for line in lines)}
    own = {row.name for row in experiment.rows} - NOT_IN_THE_PAPER.get(name, set())
    assert own == rows.keys()
    for row, values in rows.items():
        for column, text in zip(experiment.columns, values, strict=True):
            found = experiment.paper(Cell(row, column.name))
            if text == "none":
                assert found is None
                assert Cell(row, column.name) not in experiment.cells("full")
                continue
            mean, *rest = text.split()
            spread = next((float(part) for part in rest if part != "†"), None)
            assert found == PaperValue(float(mean), spread, "†" in rest)
            assert Cell(row, column.name) in experiment.cells("full")


def test_the_figures_have_the_numbers_of_the_text() -> None:
    experiment = load_experiment("domain-adaptation")
    found = {row.name: experiment.paper(Cell(row.name, "MNIST")) for row in experiment.rows}
    means = {name: value and value.mean for name, value in found.items()}
    assert means == {
        "Source only": 69.09,
        "Mean Teacher": 80.41,
        "Dual Student": 91.50,
        "Target-supervised": 98.41,
    }
    for name in ("ablation", "coupling", "stable-samples"):
        experiment = load_experiment(name)
        assert all(experiment.paper(cell) is None for cell in experiment.cells("full"))


def test_the_number_of_runs_is_that_of_the_paper() -> None:
    seeds = {name: load_experiment(name).seeds for name in list_experiments()[:6]}
    assert seeds == dict(zip(TABLES, (5, 5, 5, 2, 3, 5), strict=True))
