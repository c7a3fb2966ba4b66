"""Draws the adaptation curves of RESULTS.md from the metrics in results/.

python benchmarks/draw_adaptation.py
"""

from pathlib import Path

from dualstudent import Run, draw_curves

ROOT = Path(__file__).parents[1]
SHORT = ROOT / "results" / "usps-mnist-25"
FULL = ROOT / "results" / "reproduce" / "whole-map" / "runs"
PICTURES = {
    "usps-mnist-25": (
        "USPS → MNIST, 25 epochs",
        {run.name: run for run in sorted(SHORT.iterdir())},
    ),
    "usps-mnist-weights": (
        "USPS → MNIST: weights of the constraints",
        {
            "λ = 1, seed 0": FULL / "dual-student-usps-mnist-all-72b46fba-seed0",
            "λ = 1, seed 1": FULL / "dual-student-usps-mnist-all-72b46fba-seed1",
            "λ = 10, seed 0": FULL / "dual-student-usps-mnist-all-2cb06cfb-seed0",
        },
    ),
}


def main() -> None:
    for name, (title, folders) in PICTURES.items():
        target = ROOT / "docs" / "images" / f"{name}.png"
        draw_curves(
            {label: Run(run).read_metrics() for label, run in folders.items()}, target, title
        )
        print(target)


if __name__ == "__main__":
    main()
