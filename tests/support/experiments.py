"""An experiment of seconds on real digits, and finished runs of it without training."""

import json
from pathlib import Path

from dualstudent import Run
from dualstudent.experiments.plan import Plan, plan
from dualstudent.experiments.reading import load_experiment
from dualstudent.experiments.schema import BudgetName, Cell
from dualstudent.recipes.reading import to_toml
from dualstudent.sealed import write_sealed
from dualstudent.training.run import FORMAT
from tests.support.made_runs import line, network

SMALL = """
title = "What unlabeled digits are worth"
place = "Table 0"
recipe = "digits"
seeds = 2
figure = "bars"

[[columns]]
name = "few"
settings.data = { source = "digits-8x8", image_size = 8, labels = 50 }

[[columns]]
name = "more"
settings.data = { source = "digits-8x8", image_size = 8, labels = 100 }

[[rows]]
name = "supervised"
settings.method.name = "supervised"
paper = ["12.50 ± 0.50", "7.25"]

[[rows]]
name = "both"
paper = ["10.00 ± 0.25 †", "–"]

[cpu]
smaller = "two short epochs of small batches"
seeds = 1

[[cpu.columns]]
name = "more"
settings.data = { source = "digits-8x8", image_size = 8, labels = 100 }

[cpu.settings]
batch = { size = 64, labeled = 16 }
schedule = { epochs = 2, rampup_epochs = 1 }
transforms.weak.translate = 1

[cpu.rows]
supervised = {}
both = { method.confidence_threshold = 0.5 }
"""


def small_plan(tmp_path: Path, budget: BudgetName = "full", measure: str = "error") -> Plan:
    path = tmp_path / "small.toml"
    path.write_text(SMALL.replace("seeds = 2", f'seeds = 2\nmeasure = "{measure}"', 1))
    return plan(load_experiment(path), budget)


def write_run(folder: Path, recipe_text: str, errors: list[dict[str, float]]) -> None:
    """A finished run, with the errors of its networks in each epoch."""
    folder.mkdir(parents=True)
    (folder / "recipe.toml").write_text(recipe_text)
    tests = [{name: network(error) for name, error in epoch.items()} for epoch in errors]
    lines = [json.dumps(line(number, test)) for number, test in enumerate(tests, start=1)]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    result = {
        "error": next(iter(errors[-1].values())),
        "chosen_on_test": {"error": min(errors[-1].values())},
        "epochs": len(tests),
        "networks": tests[-1],
        "headline": list(tests[-1]),
        "seconds": 40.0,
        "versions": {"python": "3.11.9", "torch": "2.13.0"},
    }
    Run(folder).write_result(result)
    write_sealed(folder / "run.json", {"format": FORMAT, "digests": {}})


def runs_of(planned: Plan, cell: Cell, folder: Path, errors: list[list[dict[str, float]]]) -> None:
    for (name, recipe), of_run in zip(planned.runs_of(cell).items(), errors, strict=False):
        write_run(folder / name, to_toml(recipe), of_run)


def write_small(folder: Path) -> Path:
    path = folder / "small.toml"
    path.write_text(SMALL)
    return path


def write_without_values(folder: Path) -> Path:
    """The same experiment; no row states a value."""
    path = folder / "without.toml"
    lines = SMALL.splitlines(keepends=True)
    path.write_text("".join(each for each in lines if not each.startswith("paper")))
    return path
