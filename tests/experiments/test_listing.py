import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dualstudent import UserError
from dualstudent.experiments import cost
from dualstudent.experiments.cost import Pace
from dualstudent.experiments.listing import list_experiments
from dualstudent.experiments.reading import experiment_names


@pytest.fixture(autouse=True)
def known_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "measure_pace", lambda _: Pace(training=0.01, test=0.0))


def listed(what: str | None = None, *of_runs: Any) -> dict[tuple[str, str], list[str]]:
    """(experiment, budget) → runs, steps, time; the second line of one has no name."""
    shown = io.StringIO()
    list_experiments(Console(file=shown, width=200), what, *of_runs)
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
    rows = listed("table3", 2, ["schedule.epochs=1"], "DS")
    assert rows["table3", "full"][:2] == ["4", "3,238"]  # 811 and 808 steps, with two seeds


def test_what_own_images_cost_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "photos.toml").write_text(
        """
        data.path = "photos"
        network.name = "quick-cnn"
        method.name = "dual-student"
        batch = { size = 8, labeled = 4 }
        optimizer.learning_rate = 0.1
        schedule.epochs = 1
        """
    )
    (tmp_path / "own.toml").write_text(
        """
        title = "Own"
        place = "here"
        recipe = "photos.toml"
        seeds = 1
        figure = "bars"
        columns = [{ name = "photos" }]
        rows = [{ name = "Dual Student" }]
        cpu = { smaller = "nothing", seeds = 1, rows = { "Dual Student" = {} } }
        """
    )
    with pytest.raises(UserError, match="--list knows what published data cost, not own images"):
        listed(str(tmp_path / "own.toml"))
