"""Draws what unlabeled images gain over everything else one would try, from tables of `compare`.

    python benchmarks/draw_few_labels.py

Reads `results/few-labels/TASK/runs.csv`, which `dualstudent compare` wrote (RESULTS.md has the
commands), and draws `docs/images/few-labels.png`.
"""

from pathlib import Path
from statistics import fmean, stdev

from matplotlib.figure import Figure

from tables import light_frame, read_csv

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "few-labels"
PICTURE = ROOT / "docs" / "images" / "few-labels.png"
TASKS = {
    "mnist": "MNIST: 100 labels, 59,900 unlabeled",
    "svhn": "SVHN: 250 labels, 3,750 unlabeled",
}
ROWS = {  # as in runs.csv → as in the picture
    "logistic regression": "logistic regression",
    "SVM": "SVM",
    "label spreading": "label spreading",
    "self-training": "self-training",
    "supervised:view=strong": "our network, labels alone",
    "fixmatch": "our network, with unlabeled images",
}
COLORS = ["tab:gray"] * 4 + ["tab:orange", "tab:blue"]


def main() -> None:
    figure = Figure(figsize=(10, 2.8), layout="constrained")
    for axes, (task, title) in zip(figure.subplots(1, len(TASKS)), TASKS.items(), strict=True):
        rows = read_csv(RESULTS / task / "runs.csv")
        errors = {
            name: [float(row["error"]) for row in rows if row["method"] == name] for name in ROWS
        }
        means = [fmean(values) for values in errors.values()]
        bars = axes.barh(
            list(ROWS.values()), means, xerr=[stdev(v) for v in errors.values()], color=COLORS
        )
        axes.bar_label(bars, [f"{mean:.1f} %" for mean in means], padding=6)
        axes.invert_yaxis()
        axes.set(xlabel="test error in %", xlim=(0, 1.2 * max(means)))
        light_frame(axes, title)
        if axes.get_subplotspec().colspan.start:
            axes.set_yticklabels([])
    figure.savefig(PICTURE, dpi=150)


if __name__ == "__main__":
    main()
