"""The demo: what unlabeled images are worth, on real digits, in 90 seconds."""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from rich.console import Console

from dualstudent.cli.progress import ProgressDisplay, progress_on
from dualstudent.recipes import load_recipe
from dualstudent.report.curves import draw_curves
from dualstudent.report.tables import format_duration, percent, result_table
from dualstudent.runs import train_or_resume
from dualstudent.signals import Interrupted
from dualstudent.training.run import Run

_RECIPES = {"supervised": "demo-supervised", "Dual Student": "demo"}


def run_demo(folder: Path, seeds: int, console: Console) -> None:
    """Train the baseline and Dual Student on the same labels, and compare them.

    Args:
        folder: for the runs; those that are there already are continued, not repeated.
        seeds: how many times, each with other labels and initial states.
        console: where progress and tables go.
    """
    labels = load_recipe("demo").data.labels
    console.print(
        f"Real MNIST digits: {labels} of 4,000 training images keep their label.\n"
        "The supervised baseline sees only those; Dual Student sees all images.\n"
    )
    try:
        with progress_on(console) as progress:
            runs = [_train_both(folder, seed, progress) for seed in range(seeds)]
    except Interrupted as stop:
        arguments = ["--seeds", str(seeds), "--out", str(folder)]
        command = shlex.join(["dualstudent", "demo", *arguments])
        raise Interrupted(stop.number, stop.done, command) from stop
    for seed, trained in enumerate(runs):
        title = f"{labels} labels, seed {seed}, last epoch"
        rows = dict(_rows(trained))
        console.print(result_table(rows, title, _times(trained)))
    _compare(runs, console)
    pictures = folder / "curves.png"
    draw_curves(
        {name: run.read_metrics() for name, run in runs[0].items()},
        pictures,
        f"MNIST with {labels} labels, seed 0",
    )
    console.print(
        f"\nRuns and their files: {folder}\nLearning curves:      {pictures}", soft_wrap=True
    )
    console.print(
        "\nWhat to try next:\n"
        "  dualstudent train demo --set data.labels=20 --out runs/twenty-labels\n"
        "  dualstudent recipes show demo\n"
        "  dualstudent train usps-mnist    # the paper's domain adaptation, some hours"
    )


def _train_both(folder: Path, seed: int, progress: ProgressDisplay) -> dict[str, Run]:
    return {
        name: train_or_resume(
            load_recipe(recipe, [f"seed={seed}"]),
            folder / f"{recipe}-{seed}",
            progress.observer(f"{name}, seed {seed}"),
        )
        for name, recipe in _RECIPES.items()
    }


def _rows(trained: Mapping[str, Run]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, run in trained.items():
        networks = run.read_result()["networks"]
        for network, figures in networks.items():
            yield f"{name} {network.removeprefix('student')}".strip(), figures


def _times(trained: Mapping[str, Run]) -> dict[str, str]:
    """The time of each run beside its first network: its networks were trained at once."""
    first = {name: next(iter(dict(_rows({name: run})))) for name, run in trained.items()}
    return {
        first[name]: format_duration(run.read_result()["seconds"]) for name, run in trained.items()
    }


def _compare(runs: list[dict[str, Run]], console: Console) -> None:
    for name in _RECIPES:
        results = [trained[name].read_result() for trained in runs]
        errors = [result["error"] for result in results]
        spread = f" ± {stdev(errors):.2f} over {len(errors)} seeds" if len(errors) > 1 else ""
        seconds = fmean(result["seconds"] for result in results)
        console.print(
            f"{name + ':':<14} test error {percent(fmean(errors))}{spread}, "
            f"{format_duration(seconds)} a run"
        )
