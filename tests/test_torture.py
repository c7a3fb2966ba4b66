"""A few of each check of ``make torture``, in a process of its own: its children are forked."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from tests.torture.checks import list_checks


@pytest.mark.slow
def test_harm_is_noticed_or_makes_no_difference(tmp_path: Path) -> None:
    table = tmp_path / "torture.csv"
    done = subprocess.run(
        [sys.executable, "-m", "tests.torture", table, "--short"],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["check"], row["of"]) for row in rows] == [each[:2] for each in list_checks(True)]
    assert all(row["outcomes"] for row in rows)
