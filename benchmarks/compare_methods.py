"""Every method on the same few labels: error, time and memory side by side.

    python benchmarks/compare_methods.py            # about an hour on 2 cores

Real MNIST digits, 50 and 200 labels, 5 seeds, the same splits, network and steps for all. It can be
stopped at any time and continues when called again. Step times are measured after the grid, with
the methods taking turns in one process; the peak memory of steps in a process of its own for each
method (Linux). Writes
`results/compare/` (raw figures and the table; times and memory are measured only if `costs.csv` is
not there: delete it to measure anew) and `docs/images/compare.png`.
"""

import argparse
import ctypes
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean, median
from typing import Any

from matplotlib.figure import Figure

from dualstudent import Recipe, Run, Trainer, load_recipe, run_grid
from progress import PrintedProgress
from tables import (
    light_frame,
    read_csv,
    spread,
    spread_of_differences,
    write_csv,
    write_table,
)

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "compare"
PICTURE = ROOT / "docs" / "images" / "compare.png"
LABELS = (50, 200)
SEEDS = range(5)

SUM = "-sum"  # rows of Smooth Neighbors with distances summed over the features
SWA = "average_from=4, average_every=1"
TEMPORAL = "consistency_weight=100"  # as in the program of Smooth Neighbors on MNIST
# Each with its own paper's weights; what differs from the defaults is stated here. The recipe's
# settings of the task hold for all: ℒ_cls averaged over the labels, ξ = 0.6.
METHODS = {
    "supervised": "",
    "pi": "",
    "temporal": TEMPORAL,
    "mean-teacher": "decay=0.99",
    "vat": "epsilon=2.0",
    "pi+fastswa": SWA,
    "mean-teacher+fastswa": f"decay=0.99, {SWA}",
    "pi+sn": "",
    f"pi+sn{SUM}": 'neighbor_distance="sum"',
    "temporal+sn": TEMPORAL,
    f"temporal+sn{SUM}": f'{TEMPORAL}, neighbor_distance="sum"',
    "deep-co-training": "",
    "cs": "",
    "dual-student": "",
    "multiple-student": "students=4",
    "imbalanced-student": 'strong_network={name="digits-cnn", width=2}',
    "dual-student+mean-teacher": "decay=0.99",
}


def recipe_for(method: str, labels: int, seed: int) -> Recipe:
    name = f'name="{method.removesuffix(SUM)}"'
    settings = ", ".join(filter(None, (name, METHODS[method])))
    changes = [f"data.labels={labels}", f"seed={seed}", f"method={{{settings}}}"]
    if method.endswith("+fastswa"):  # replays a part of the cosine, as FastSWA does
        changes += ["schedule.cosine_epochs=7", "schedule.cycle_from=4", "schedule.cycle_length=1"]
    return load_recipe("compare", changes)


def grid() -> dict[str, Recipe]:
    """Seed by seed, so that an early stop leaves whole comparisons."""
    return {
        f"{method}-{labels}-{seed}": recipe_for(method, labels, seed)
        for seed in SEEDS
        for labels in LABELS
        for method in METHODS
    }


def write_errors(runs: dict[str, Run]) -> list[dict[str, Any]]:
    rows = []
    for name, run in runs.items():
        method, labels, seed = name.rsplit("-", 2)
        result = run.read_result()
        row = {"method": method, "labels": int(labels), "seed": int(seed), "error": result["error"]}
        networks = {name: figures["error"] for name, figures in result["networks"].items()}
        rows.append(row | {"steps": result["steps"], "networks": json.dumps(networks)})
    write_csv(RESULTS / "errors.csv", rows)
    return rows


def measure_costs(rounds: int = 15) -> list[dict[str, Any]]:
    """Median time of a step relative to supervised, methods taking turns; peak memory."""
    trainings = {method: Trainer(recipe_for(method, LABELS[0], 0)) for method in METHODS}
    times: dict[str, list[float]] = {method: [] for method in METHODS}
    for step in range(rounds + 2):
        for method, trainer in trainings.items():
            trainer.method.train()
            started = time.perf_counter()
            trainer.take_step(step)
            times[method].append(time.perf_counter() - started)
    unit = median(times["supervised"][2:])
    rows = [
        {
            "method": method,
            "relative_step_time": round(median(times[method][2:]) / unit, 2),
            "peak_memory_mib": peak_memory(method),
        }
        for method in METHODS
    ]
    write_csv(RESULTS / "costs.csv", rows)
    return rows


def peak_memory(method: str) -> int:
    """What three steps need at most beside the loaded data and networks, in MiB."""
    command = [sys.executable, __file__, "--memory-of", method]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def print_memory_of(method: str) -> None:
    trainer = Trainer(recipe_for(method, LABELS[0], 0))
    trainer.method.train()
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # loading needs more than training: give it back
    Path("/proc/self/clear_refs").write_text("5")  # and forget the peak
    before = resident_kib("VmRSS")
    for step in range(3):
        trainer.take_step(step)
    print((resident_kib("VmHWM") - before) // 1024)


def resident_kib(what: str) -> int:
    status = Path("/proc/self/status").read_text()
    return int(re.findall(rf"{what}:\s+(\d+) kB", status)[0])


def errors_of(rows: Iterable[dict[str, Any]], method: str, labels: int) -> list[float]:
    return [row["error"] for row in rows if (row["method"], row["labels"]) == (method, labels)]


def minus_dual_student(errors: list[dict[str, Any]], method: str, labels: int) -> str:
    if method == "dual-student":
        return ""
    reference = errors_of(errors, "dual-student", labels)
    return spread_of_differences(errors_of(errors, method, labels), reference)


def tabulate(errors: list[dict[str, Any]], costs: list[dict[str, Any]]) -> None:
    columns = ["method"]
    for labels in LABELS:
        columns += [f"{labels} labels", "minus dual-student"]
    columns += ["step time", "peak memory"]
    rows = [
        [
            cost["method"],
            *(
                cell
                for labels in LABELS
                for cell in (
                    spread(errors_of(errors, cost["method"], labels)),
                    minus_dual_student(errors, cost["method"], labels),
                )
            ),
            f"{float(cost['relative_step_time']):.2f}",
            f"{cost['peak_memory_mib']} MiB",
        ]
        for cost in costs
    ]
    write_table(RESULTS / "table.md", columns, rows)


def draw(errors: list[dict[str, Any]]) -> None:
    figure = Figure(figsize=(11, 5), layout="constrained")
    panels = figure.subplots(1, len(LABELS), sharey=True)
    for axes, labels in zip(panels, LABELS, strict=True):
        for index, method in enumerate(METHODS):
            values = errors_of(errors, method, labels)
            axes.plot(values, [index] * len(values), "o", color="C0", alpha=0.35)
            axes.plot(fmean(values), index, "|", color="C3", markersize=16, markeredgewidth=2)
        axes.set_yticks(range(len(METHODS)), METHODS)
        light_frame(axes, f"{labels} labels")
        axes.set_xlabel("test error in %, last epoch (dots: seeds, bar: mean)")
        axes.set_xlim(left=0)
    panels[0].invert_yaxis()
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/compare"), help="folder of the runs")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory_of:
        print_memory_of(arguments.memory_of)
        return
    errors = write_errors(run_grid(grid(), arguments.out, PrintedProgress("compare")))
    costs = RESULTS / "costs.csv"  # delete it to measure anew
    tabulate(errors, read_csv(costs) if costs.is_file() else measure_costs())
    draw(errors)


if __name__ == "__main__":
    main()
