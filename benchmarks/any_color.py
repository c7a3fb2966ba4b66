"""Should weak views of color images have any hue and saturation? Where colors tell the classes?

    python benchmarks/any_color.py --seeds 1     # about 40 minutes on one core a seed

FixMatch from scratch as `train --data` chooses it, but for 1,500 steps, with weak views of any hue
and saturation, and with colors kept: on three data sets, and on versions of them whose classes have
a tint, so that colors tell them apart. Beside it the color cue: how often the colors of a labeled
image are nearer to those of its class than to those of another one (50 %: chance). Error on
validation images from the training part. It can be stopped at any time and continues when called
again. Writes `results/any-color/`.
"""

import argparse
from pathlib import Path
from typing import Any

import torch

from choose_defaults import train_once
from choose_method import IN_COLOR, METHODS, choose_for, read_pixels
from dualstudent import Transforms, measure_color_cue
from tables import run_trials, spread, spread_of_differences, write_table
from validation_tasks import prepare_task

RESULTS = Path(__file__).parents[1] / "results" / "any-color"
STEPS, DRAWS = 1_500, 20
WEAK = {"any": [0.0, 0.0, 1.0, 0.5], "kept": [0.0, 0.0, 0.0, 0.0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1)
    seeds = range(parser.parse_args().seeds)
    torch.set_num_threads(1)
    trials = [{"task": task, "seed": seed} for seed in seeds for task in IN_COLOR]
    rows = run_trials(RESULTS / "trials.csv", trials, measure)
    draws = [{"task": task, "seed": seed} for task in IN_COLOR for seed in range(DRAWS)]
    write_results(rows, run_trials(RESULTS / "cues.csv", draws, measure_cue))


def measure(task: str, seed: int) -> dict[str, float]:
    found = {}
    for colors, jitter in WEAK.items():
        wanted = {"method": METHODS["fixmatch"], "transforms": {"weak": {"jitter": jitter}}}
        recipe, data = choose_for(task, wanted, seed, STEPS)
        found[colors] = train_once(recipe, data)["error"]
    return found


def measure_cue(task: str, seed: int) -> dict[str, float]:
    name, changes = IN_COLOR[task]
    data = prepare_task(name, 10, seed, Transforms(), **changes)
    cue = measure_color_cue(read_pixels(data, data.labeled), data.labels[data.labeled])
    return {"cue": round(100 * cue, 1)}


def write_results(rows: list[dict[str, Any]], cues: list[dict[str, Any]]) -> None:
    table = []
    for task in IN_COLOR:
        cue = [float(row["cue"]) for row in cues if row["task"] == task]
        any_color, kept = (
            [float(row[column]) for row in rows if row["task"] == task] for column in WEAK
        )
        errors = [spread(any_color), spread(kept), spread_of_differences(kept, any_color)]
        table.append([task, spread(cue), *errors])
    heads = [
        f"color cue in %, {DRAWS} draws",
        "error, any color",
        "error, colors kept",
        "kept minus any",
    ]
    write_table(RESULTS / "table.md", ["validation, 10 labels a class", *heads], table)


if __name__ == "__main__":
    main()
