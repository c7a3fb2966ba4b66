"""Draws how far CIFAR-10 from scratch is after 10, 30, 60 and more minutes, from kept runs.

    python benchmarks/draw_minutes.py

Reads `results/few-labels/cifar10/` and `cifar10-wider/` (RESULTS.md has the commands), and draws
`docs/images/minutes.png`. A step is taken to need the same time everywhere in a run: minutes are
the share of its steps times its clock.
"""

from pathlib import Path

from matplotlib.figure import Figure

from dualstudent import Run
from tables import light_frame

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "few-labels"
RUNS = {"cifar10": "an hour", "cifar10-wider": "two hours, wider"}  # folder → what was run
PICTURE = ROOT / "docs" / "images" / "minutes.png"
PAPER = 15.74  # Dual Student, Table 1


def main() -> None:
    figure = Figure(figsize=(7, 3.4), layout="constrained")
    axes = figure.subplots()
    for name, what in RUNS.items():
        for folder in sorted((RESULTS / name).glob("seed-*")):
            minutes, errors = read_curve(Run(folder))
            seed = folder.name.replace("-", " ")
            axes.plot(minutes, errors, "o-", label=f"{what}, {seed}: {errors[-1]:.1f} %")
    axes.axhline(
        PAPER, color="tab:gray", linestyle=":", label=f"the paper, 300 epochs: {PAPER:.1f} %"
    )
    axes.set(xlabel="minutes with one thread", ylabel="test error in %", ylim=(0, None))
    axes.set_xlim(0, None)
    axes.set_xticks(range(0, int(axes.get_xlim()[1]) + 1, 10))
    axes.legend()
    light_frame(axes, "CIFAR-10, 1,000 labels of 50,000, from random weights")
    figure.savefig(PICTURE, dpi=130)


def read_curve(run: Run) -> tuple[list[float], list[float]]:
    result = run.read_result()
    tested = [record for record in run.read_metrics() if record["test"]]
    minutes = [record["step"] / result["steps"] * result["seconds"] / 60 for record in tested]
    return minutes, [record["test"]["student"]["error"] for record in tested]


if __name__ == "__main__":
    main()
