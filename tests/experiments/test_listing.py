from pathlib import Path

import pytest

from dualstudent import UserError
from dualstudent.experiments import cost
from dualstudent.experiments.cost import Pace
from dualstudent.experiments.listing import list_costs
from dualstudent.experiments.reading import list_experiments


@pytest.fixture(autouse=True)
def known_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "measure_pace", lambda _: Pace(training=0.01, test=0.0))


def test_every_experiment_is_listed_at_both_sizes() -> None:
    costs = {(each.name, each.budget): each for each in list_costs()}
    assert set(costs) == {
        (name, budget) for name in (*list_experiments(), "all") for budget in ("full", "cpu")
    }
    # One run of 300 epochs of 980 steps with 100 images, a hundredth of a second each.
    single = costs["stable-samples", "full"]
    assert (single.runs, single.steps) == (1, 294_000)
    assert single.seconds == pytest.approx(294_000)
    assert costs["all", "cpu"].runs < sum(
        costs[name, "cpu"].runs for name in list_experiments()
    )  # they share some


def test_the_cost_of_a_part_with_changes() -> None:
    full, _ = list_costs("table3", 2, ["schedule.epochs=1"], "DS")
    assert (full.budget, full.runs) == ("full", 4)
    assert full.steps == 2 * (811 + 808)  # with two seeds


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
    with pytest.raises(UserError, match="own images"):
        list_costs(str(tmp_path / "own.toml"))
