"""Draws the errors of all methods on the same few labels, from a table of `compare`.

    python benchmarks/draw_methods.py

Reads `results/all-methods/`, which `dualstudent compare` wrote (RESULTS.md has the commands), and
draws `docs/images/compare.png`.
"""

from pathlib import Path
from statistics import fmean

from matplotlib.figure import Figure

from tables import light_frame, read_csv

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "compare.png"


def main() -> None:
    errors: dict[str, list[float]] = {}
    for file in sorted((ROOT / "results" / "all-methods").glob("**/runs.csv")):
        for row in read_csv(file):
            errors.setdefault(row["method"], []).append(float(row["error"]))
    names = sorted(errors, key=lambda name: fmean(errors[name]))
    figure = Figure(figsize=(9, 0.5 + 0.26 * len(names)), layout="constrained")
    axes = figure.subplots()
    for place, name in enumerate(names):
        axes.plot(errors[name], [place] * len(errors[name]), "o", color="C0", alpha=0.4)
        axes.plot(fmean(errors[name]), place, "|", color="C3", markersize=14, markeredgewidth=2)
    axes.set_yticks(range(len(names)), [name.partition(":strong_network")[0] for name in names])
    axes.invert_yaxis()
    axes.set(xscale="log", xlabel="test error in %, last epoch (dots: draws of labels, bar: mean)")
    axes.set_xticks([2, 5, 10, 20, 50, 100], ["2", "5", "10", "20", "50", "100"])
    axes.minorticks_off()
    light_frame(axes, "mnist-5k, 50 labels, 492 steps")
    figure.savefig(PICTURE, dpi=110)


if __name__ == "__main__":
    main()
