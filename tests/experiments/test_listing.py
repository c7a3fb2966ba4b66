import io

import pytest
from rich.console import Console

from dualstudent.experiments import cost
from dualstudent.experiments.cost import Pace
from dualstudent.experiments.listing import list_experiments
from dualstudent.experiments.reading import experiment_names


@pytest.fixture(autouse=True)
def known_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "measured_pace", lambda _: Pace(training=0.01, test=0.0))


def listed(what: str | None = None) -> dict[tuple[str, str], list[str]]:
    """(experiment, budget) → runs, steps, time; the second line of one has no name."""
    shown = io.StringIO()
    list_experiments(Console(file=shown, width=200), what)
    cells = [
        [cell.strip() for cell in line.split("│")[1:-1]] for line in shown.getvalue().split("\n")
    ]
    return {(row[0], row[2]): row[3:] for row in cells if len(row) == 6}


def test_every_experiment_is_listed_at_both_sizes() -> None:
    rows = listed()
    for name in experiment_names():
        assert (name, "full") in rows
    # One run of 300 epochs of 980 steps with 100 images: 294,000 seconds.
    assert rows["stable-samples", "full"] == ["1", "294,000", "3 days"]
    # 4 runs of 100 epochs of 267 steps with 256 images: 273,408 seconds.
    assert rows["domain-adaptation", "full"][:2] == ["4", "106,800"]
    together = int(rows["all", "full"][0])
    each = [
        int(row[0]) for (name, budget), row in rows.items() if budget == "full" and name != "all"
    ]
    assert max(each) < together < sum(each)  # what is shared is counted once


def test_a_single_one_can_be_listed() -> None:
    rows = listed("stable-samples")
    assert list(rows) == [("stable-samples", "full"), ("", "cpu")]
    assert rows["stable-samples", "full"] == ["1", "294,000", "3 days"]
