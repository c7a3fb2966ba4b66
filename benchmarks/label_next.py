"""Which images to label next: does the order of `dualstudent label` beat labeling at random?

    python benchmarks/label_next.py             # as reported: 17 minutes beside other work
    python benchmarks/label_next.py --tune      # how the order was chosen: 35 minutes

3,000 of the bundled MNIST digits at 14 × 14 pixels, 50 of them labeled. A run is trained, and an
order of the 2,950 others made from it; the first k are given their true labels, as a person would
do, and a run with the same seed is trained from the beginning with 50 + k labels. Only which k
differs. Orders are compared (`--tune`) on the 1,000 training digits that no run of their seed
sees, and reported on the 1,000 test digits. It can be stopped at any time and continues when
called again. Writes `results/label-next/`.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from dualstudent import (
    Evaluator,
    ImageSamples,
    Recipe,
    Run,
    choose_images,
    load_mnist_5k,
    load_recipe,
    load_trained,
    run_grid,
    write_labels,
    write_manifest,
)
from label_orders import ORDERS, Pool
from progress import PrintedProgress
from tables import read_csv, spread, spread_of_differences, write_csv, write_table

RESULTS = Path(__file__).parents[1] / "results" / "label-next"
REPORTED, TUNED = range(5), range(100, 103)
IMAGES, SIZE, MORE = 3000, 14, (20, 50)
CHANGES = (
    *(f"data.images={IMAGES}", f"data.image_size={SIZE}", "transforms.weak.translate=1"),
    *("batch.size=64", "batch.labeled=16"),
    *("schedule.epochs=8", "schedule.rampup_epochs=2", "evaluation.every=8"),
)


def recipe_for(seed: int, *changes: str) -> Recipe:
    return load_recipe("digits", [*CHANGES, f"seed={seed}", *changes])


def with_more_labels(first: Run, seed: int, orders: Iterable[str], out: Path) -> dict[str, Recipe]:
    """Name → recipe of each second run, its labels written down beside the runs."""
    pool, recipes = Pool.of(first), {}
    data = pool.trainer.data
    assert data.source is not None
    (out / "splits").mkdir(exist_ok=True)
    for order in orders:
        indices = data.unlabeled[ORDERS[order](pool)]
        for more in MORE:
            split = out / "splits" / f"{order}-{more}-{seed}.json"
            labeled = torch.cat([data.labeled, indices[:more]]).sort().values
            write_manifest(split, data.source, labeled, seed)
            recipes[split.stem] = recipe_for(seed, "data.labels=all", f"data.split='{split}'")
    return recipes


def both_rounds(seeds: Iterable[int], orders: Iterable[str], out: Path) -> dict[str, Run]:
    """All runs, one at a time: first those of the labels that are there, then those with more."""
    firsts = {f"first-0-{seed}": recipe_for(seed) for seed in seeds}
    runs = run_grid(firsts, out, PrintedProgress("first runs"), workers=1)
    recipes: dict[str, Recipe] = {}
    for name, run in runs.items():
        recipes |= with_more_labels(run, int(name.split("-")[-1]), orders, out)
    return runs | run_grid(recipes, out, PrintedProgress("with more labels"), workers=1)


def error(run: Run, tune: bool) -> float:
    """In %, mean of the students: on the training digits that no run sees, or on the test."""
    if not tune:
        return float(run.read_result()["error"])
    training, digits = load_trained(run), load_mnist_5k("train")
    recipe, others = training.recipe, torch.ones(len(digits), dtype=torch.bool)
    others[choose_images(digits, IMAGES, recipe.seed)] = False
    unseen = digits.select(others.nonzero().squeeze(1)).resize(SIZE)
    samples = ImageSamples(unseen.pixels, recipe.transforms, recipe.normalization)
    threshold = training.method.confidence_threshold
    judge = Evaluator(samples, unseen.labels, threshold, recipe.seed)
    figures = judge.evaluate(training.method.evaluated).networks
    return sum(each.error for each in figures.values()) / len(figures)


def tabulate(rows: list[dict[str, Any]], path: Path) -> None:
    def errors(order: str, more: int) -> list[float]:
        return [row["error"] for row in rows if (row["order"], row["more"]) == (order, more)]

    def minus_random(order: str, more: int) -> str:
        if order == "random":
            return ""
        return spread_of_differences(errors(order, more), errors("random", more))

    columns = ["order"]
    for more in MORE:
        columns += [f"{more} more labels", "minus random"]
    cells = [["no more labels", spread(errors("first", 0)), "", "", ""]]
    for order in dict.fromkeys(row["order"] for row in rows if row["more"]):
        each = ((spread(errors(order, more)), minus_random(order, more)) for more in MORE)
        cells.append([order, *(cell for pair in each for cell in pair)])
    write_table(path, columns, cells)


def trusted(run: Run, seed: int) -> dict[str, Any]:
    """What `dualstudent label` trusts of a first run, and how much of that is true."""
    with TemporaryDirectory() as folder:
        sheet = write_labels(run, Path(folder) / "labels.csv")
        rows = [r for r in read_csv(Path(folder) / "labels.csv") if r["trusted"] == "true"]
    source, threshold = load_trained(run).data.source, sheet.trust_rule.threshold
    assert source is not None
    assert threshold is not None
    truth = source.labels.tolist()  # the names of the ten classes are their numbers
    right = sum(int(row["predicted"]) == truth[int(row["path"].split()[-1])] for row in rows)
    return {
        "seed": seed,
        "unlabeled": sheet.unlabeled,
        "trusted": len(rows),
        "right": right,
        "test_believed": threshold.accepted,
        "test_right": threshold.correct,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/label-next"), help="of the runs")
    parser.add_argument("--tune", action="store_true", help="compare all orders, on other seeds")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tune, out = arguments.tune, arguments.out.absolute()
    seeds, orders = (TUNED, tuple(ORDERS)) if tune else (REPORTED, ("random", "coverage"))
    runs, rows = both_rounds(seeds, orders, out), []
    for name, run in runs.items():
        order, more, seed = name.rsplit("-", 2)
        found = round(error(run, tune), 2)
        rows.append({"order": order, "more": int(more), "seed": int(seed), "error": found})
    if not tune:
        firsts = [trusted(runs[f"first-0-{seed}"], seed) for seed in seeds]
        write_csv(RESULTS / "trusted.csv", firsts)
    name = "tuning" if tune else "errors"
    write_csv(RESULTS / f"{name}.csv", rows)
    tabulate(rows, RESULTS / ("tuning.md" if tune else "table.md"))


if __name__ == "__main__":
    main()
