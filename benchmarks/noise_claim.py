"""Is input noise vital for Mean Teacher but not for Dual Student in adaptation (Appendix D)?

    python benchmarks/noise_claim.py          # about 6 minutes on 2 cores

Adaptation from the 8×8 digits to the MNIST digits, both bundled, each method with the paper's
noise and without any, 3 seeds. It can be stopped and continues when called again. Writes
`results/noise-claim/`.
"""

import argparse
from pathlib import Path

from dualstudent import Recipe, load_recipe, run_grid
from progress import PrintedProgress
from tables import spread, write_csv, write_table

RESULTS = Path(__file__).parents[1] / "results" / "noise-claim"
SEEDS = range(3)
NOISE = (0.15, 0.0)
METHODS = {
    "supervised": 'method.name="supervised"',
    "mean-teacher": 'method={name="mean-teacher", consistency_weight=1, decay=0.99}',
    "dual-student": 'method.name="dual-student"',
}

WHOLE_MAP = "network.pool=7"  # as when the kept figures were measured


def grid() -> dict[tuple[str, float, int], Recipe]:
    return {
        (method, noise, seed): load_recipe(
            "digits-adaptation",
            [change, f"transforms.weak.noise={noise}", f"seed={seed}", WHOLE_MAP],
        )
        for seed in SEEDS
        for noise in NOISE
        for method, change in METHODS.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/noise-claim"))
    folder = parser.parse_args().out
    recipes = grid()
    names = {key: "-".join(map(str, key)) for key in recipes}
    named = {names[key]: recipe for key, recipe in recipes.items()}
    runs = run_grid(named, folder, PrintedProgress("noise claim"))
    errors = {key: runs[name].read_result()["error"] for key, name in names.items()}
    columns = ("method", "noise", "seed", "error")
    rows = [dict(zip(columns, (*key, error), strict=True)) for key, error in errors.items()]
    write_csv(RESULTS / "errors.csv", rows)
    cells = [
        [method, *(spread([errors[method, noise, seed] for seed in SEEDS]) for noise in NOISE)]
        for method in METHODS
    ]
    write_table(RESULTS / "table.md", ["method", *(f"noise {noise}" for noise in NOISE)], cells)


if __name__ == "__main__":
    main()
