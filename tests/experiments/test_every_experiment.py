"""Every experiment of the paper from files to table, in the smallest of sizes."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from dualstudent.experiments.plan import plan, run_name
from dualstudent.experiments.reading import list_experiments, load_experiment
from dualstudent.experiments.reproduce import Request, plan_request, reproduce
from dualstudent.experiments.schema import BudgetName
from dualstudent.parallel import Progress
from dualstudent.recipes.schema import Recipe
from dualstudent.runs import train_or_resume
from dualstudent.training.run import Run
from tests.support.published import write_published

PROJECT = Path(__file__).parents[2]
RESULTS = PROJECT / "results" / "reproduce"

TINY = ("schedule.epochs=1", "batch.size=8", "batch.labeled=4")
FEW = ("data.images=20", "data.labels=10")
CHANGES = {
    "table2": ("data.images=200", "data.labels=100"),
    "table4": ("data.images=48", "data.labels=25%", "data.image_size=32", "data.workers=0"),
    "domain-adaptation": ("data.labels=10",),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_published(tmp_path_factory.mktemp("data"))


def one_after_the_other(
    recipes: Mapping[str, Recipe], folder: Path, progress: Progress | None, on: str
) -> dict[str, Run]:
    """In place of the grid, whose processes take longer to start than these runs take."""
    return {name: train_or_resume(recipe, folder / name) for name, recipe in recipes.items()}


@pytest.mark.filterwarnings("ignore::dualstudent.errors.DataWarning")
@pytest.mark.parametrize("name", list_experiments())
def test_an_experiment_leads_from_files_to_a_table_and_pictures(
    name: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUALSTUDENT_DATA", str(data))
    monkeypatch.setattr("dualstudent.experiments.reproduce.run_grid", one_after_the_other)
    changes = (*TINY, *CHANGES.get(name, FEW))
    request = Request(name, "cpu", seeds=1, out=tmp_path, changes=changes)
    folder = reproduce(request, plan_request(request)).folder
    lines = (folder / "table.md").read_text().splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines[2 : lines.index("")]]
    assert len(rows) == len(load_experiment(name).cells("cpu"))
    for *_, measured, seeds, chosen in rows:
        assert 0 <= float(measured) <= 100
        assert 0 <= float(chosen) <= 100
        assert seeds == "1"
    pictures = list(folder.glob("*.png"))
    assert pictures
    page = (folder / "index.html").read_text()
    assert page.count("<svg") == len(pictures)
    assert "ICCV 2019" in page
    assert any(" of the paper, in small. " in line for line in lines)


@pytest.mark.parametrize("run", sorted(RESULTS.glob("*/runs/*")), ids=lambda run: run.name)
def test_a_kept_run_has_the_name_by_which_experiments_find_it(run: Path) -> None:
    assert run_name(Run.open(run).read_recipe()) == run.name


@pytest.mark.parametrize(
    ("what", "budget", "folder", "changes"),
    [
        ("table1", "cpu", "cpu", ("device.precision=bf16-mixed",)),
        ("ablation", "cpu", "cpu", ()),
        ("stable-samples", "cpu", "cpu", ()),
        ("domain-adaptation", "full", "whole-map", ("network.pool=7",)),
        (str(PROJECT / "benchmarks" / "adaptation-settings.toml"), "cpu", "cpu", ()),
    ],
)
def test_the_kept_runs_are_all_that_a_reported_table_needs(
    what: str, budget: BudgetName, folder: str, changes: tuple[str, ...]
) -> None:
    for recipe in plan(load_experiment(what), budget, changes=changes).runs().values():
        kept = RESULTS / folder / "runs" / run_name(change_back(recipe))
        assert (kept / "result.json").is_file()


def change_back(recipe: Recipe) -> Recipe:
    """The recipe as it was when runs over the whole 7 × 7 map were kept.

    This pool was the default, unnamed, and Mean Teacher had other weights than French et al.
    """
    if getattr(recipe.network, "pool", None) != 7:
        return recipe
    network, method = recipe.network.model_copy(update={"pool": None}), recipe.method
    if method.name == "mean-teacher":
        guess = {"consistency_weight": 1.0, "confidence_threshold": 0.8}
        method = method.model_copy(update=guess)
    return recipe.model_copy(update={"network": network, "method": method})
