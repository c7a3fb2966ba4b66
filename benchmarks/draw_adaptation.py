"""Draws the adaptation curves of RESULTS.md from the metrics in results/.

python benchmarks/draw_adaptation.py
"""

from pathlib import Path

from dualstudent import Run
from dualstudent.report.curves import draw_curves

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "results" / "usps-mnist-25"


def main() -> None:
    runs = {run.name: Run(run).read_metrics() for run in sorted(FOLDER.iterdir())}
    target = ROOT / "docs" / "images" / "usps-mnist-25.png"
    draw_curves(runs, target, "USPS → MNIST, 25 epochs")
    print(target)


if __name__ == "__main__":
    main()
