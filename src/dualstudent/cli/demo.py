"""``dualstudent demo``: what unlabeled images add, on real digits."""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualstudent.cli.console import console, print_line
from dualstudent.cli.results import build_result_table
from dualstudent.report.format import format_duration, format_percent
from dualstudent.signals import Interrupted

if TYPE_CHECKING:
    from dualstudent.progress import ProgressDisplay
    from dualstudent.training.run import Run

_RECIPES = {"supervised": "demo-supervised", "Dual Student": "demo"}


def demo(
    seeds: Annotated[int, typer.Option(min=1, help="Number of runs, each with other labels.")] = 1,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the runs; those found there are continued. Default: a new runs/demo…"
        ),
    ] = None,
) -> None:
    """See Dual Student learn from unlabeled digits: nothing to download, two minutes."""
    from dualstudent.recipes.reading import load_recipe

    folder = out or _find_free_folder(Path("runs/demo"))
    labels = load_recipe("demo").data.labels
    console.print(
        f"Real MNIST digits: {labels} of 4,000 training images keep their label.\n"
        "The supervised baseline sees only those; Dual Student sees all images.\n"
    )
    runs = _train_all(folder, seeds)
    for seed, trained in enumerate(runs):
        title = f"{labels} labels, seed {seed}, last epoch"
        console.print(build_result_table(dict(_list_rows(trained)), title, _list_times(trained)))
    _print_comparison(runs)
    curves = folder / "curves.png"
    _draw_curves(runs[0], curves, f"MNIST with {labels} labels, seed 0")
    console.print()
    print_line(console, f"Runs and their files: {folder}")
    print_line(console, f"Learning curves:      {curves}")
    console.print(
        "\nWhat to try next:\n"
        "  dualstudent train demo --set data.labels=20 --out runs/twenty-labels\n"
        "  dualstudent recipes show demo\n"
        "  dualstudent train usps-mnist    # the paper's domain adaptation, some hours"
    )


def _train_all(folder: Path, seeds: int) -> "list[dict[str, Run]]":
    """The baseline and Dual Student on the same labels, for each seed."""
    from dualstudent.progress import show_progress

    try:
        with show_progress(console) as progress:
            return [_train_both(folder, seed, progress) for seed in range(seeds)]
    except Interrupted as stop:
        arguments = ["--seeds", str(seeds), "--out", str(folder)]
        command = shlex.join(["dualstudent", "demo", *arguments])
        raise Interrupted(stop.number, stop.done, command) from stop


def _train_both(folder: Path, seed: int, progress: "ProgressDisplay") -> "dict[str, Run]":
    from dualstudent.recipes.reading import load_recipe
    from dualstudent.runs import train_or_resume

    return {
        name: train_or_resume(
            load_recipe(recipe, [f"seed={seed}"]),
            folder / f"{recipe}-{seed}",
            progress.make_callback(f"{name}, seed {seed}"),
        )
        for name, recipe in _RECIPES.items()
    }


def _list_rows(trained: "Mapping[str, Run]") -> Iterator[tuple[str, dict[str, Any]]]:
    for name, run in trained.items():
        networks = run.read_result()["networks"]
        for network, figures in networks.items():
            yield f"{name} {network.removeprefix('student')}".strip(), figures


def _list_times(trained: "Mapping[str, Run]") -> dict[str, str]:
    """The time of each run, beside its first network: its networks were trained at once."""
    first = {name: next(iter(dict(_list_rows({name: run})))) for name, run in trained.items()}
    return {
        first[name]: format_duration(run.read_result()["seconds"]) for name, run in trained.items()
    }


def _print_comparison(runs: "list[dict[str, Run]]") -> None:
    for name in _RECIPES:
        results = [trained[name].read_result() for trained in runs]
        errors = [result["error"] for result in results]
        spread = f" ± {stdev(errors):.2f} over {len(errors)} seeds" if len(errors) > 1 else ""
        seconds = fmean(result["seconds"] for result in results)
        console.print(
            f"{name + ':':<14} test error {format_percent(fmean(errors))}{spread}, "
            f"{format_duration(seconds)} a run"
        )


def _draw_curves(trained: "Mapping[str, Run]", path: Path, title: str) -> None:
    from dualstudent.report.curves import draw_curves

    draw_curves({name: run.read_metrics() for name, run in trained.items()}, path, title)


def _find_free_folder(wanted: Path) -> Path:
    """The folder, or the first numbered one beside it that does not exist yet."""
    folder, number = wanted, 1
    while folder.exists():
        number += 1
        folder = wanted.with_name(f"{wanted.name}-{number}")
    return folder
