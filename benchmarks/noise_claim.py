"""Is input noise vital for Mean Teacher but not for Dual Student in adaptation (Appendix D)?

    python benchmarks/noise_claim.py          # about 20 minutes on 2 cores

Adaptation from the 8×8 digits to the MNIST digits, both embedded, each method with the paper's
noise and without any, 5 seeds. It can be stopped and continues when called again. Writes
`results/noise-claim/`.
"""

import argparse
import csv
from pathlib import Path
from statistics import fmean, stdev

from rich.console import Console

from dualstudent import Recipe, load_recipe
from dualstudent.cli import run_for_people
from dualstudent.grid import run_grid
from dualstudent.training.progress import progress_on

RESULTS = Path(__file__).parents[1] / "results" / "noise-claim"
SEEDS = range(5)
NOISE = (0.15, 0.0)
METHODS = {
    "supervised": 'method.name="supervised"',
    "mean-teacher": 'method={name="mean-teacher", consistency_weight=1, decay=0.99, '
    'classification_average="labeled"}',
    "dual-student": 'method.name="dual-student"',
}


def grid() -> dict[tuple[str, float, int], Recipe]:
    return {
        (method, noise, seed): load_recipe(
            "digits-adaptation", [change, f"augmentation.noise={noise}", f"seed={seed}"]
        )
        for seed in SEEDS
        for noise in NOISE
        for method, change in METHODS.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/noise-claim"))
    recipes = {f"{m}-{noise}-{seed}": recipe for (m, noise, seed), recipe in grid().items()}
    with progress_on(Console(), unit="runs") as progress:
        runs = run_grid(recipes, parser.parse_args().out, progress.observer("noise claim"))
    errors = {key: runs["-".join(map(str, key))].read_result()["error"] for key in grid()}
    RESULTS.mkdir(parents=True, exist_ok=True)
    with (RESULTS / "errors.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("method", "noise", "seed", "error"))
        writer.writerows((*key, error) for key, error in errors.items())
    lines = ["| method | noise 0.15 | no noise |", "|---|---|---|"]
    for method in METHODS:
        cells = []
        for noise in NOISE:
            values = [errors[method, noise, seed] for seed in SEEDS]
            cells.append(f"{fmean(values):.2f} ± {stdev(values):.2f}")
        lines.append(f"| {method} | {' | '.join(cells)} |")
    (RESULTS / "table.md").write_text("\n".join(lines) + "\n")
    print((RESULTS / "table.md").read_text())


if __name__ == "__main__":
    run_for_people(main)
