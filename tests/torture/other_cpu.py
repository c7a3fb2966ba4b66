"""Measures what another CPU changes: all methods, trained with and without newer instructions.

    python -m tests.torture.other_cpu results/reliability/other-cpu.csv

The same weights on the same CPU are a promise; on another one, sums are rounded differently, and
small differences grow with every step.
"""

import csv
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

ENVIRONMENT = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "COMPATIBLE",
    "DNNL_MAX_CPU_ISA": "SSE41",
}
PROGRAM = """
import sys
import numpy as np
from dualstudent import Trainer
from dualstudent.methods import METHODS
from tests.torture.children import tiny_recipe

found = {}
for kind in METHODS:
    name = kind.Settings.model_fields["name"].default
    trainer = Trainer(tiny_recipe(name))
    for steps in (1, 12):
        while trainer.state.step < steps:
            trainer.advance()
        weights = [p.detach().numpy().ravel() for p in trainer.method.parameters()]
        found[f"{name} {steps}"] = np.concatenate(weights)
    errors = [figures["error"] for figures in trainer.evaluate()["test"].values()]
    found[f"{name} error"] = np.mean(errors)
np.savez(sys.argv[1], **found)
"""


def train_all(folder: Path, **environment: str) -> dict[str, np.ndarray]:
    """Train every method in a process with these environment variables."""
    path = folder / "found.npz"
    subprocess.run(
        [sys.executable, "-c", PROGRAM, path],
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        check=True,
    )
    with np.load(path, allow_pickle=False) as found:
        return dict(found)


def main(table: Path) -> None:
    table.parent.mkdir(parents=True, exist_ok=True)
    here, again = train_all(table.parent), train_all(table.parent)
    other = train_all(table.parent, **ENVIRONMENT)
    (table.parent / "found.npz").unlink()
    with table.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(
            ["method", "same CPU", "after 1 step", "after 12 steps", "error", "error there"]
        )
        for name in (key.removesuffix(" error") for key in here if key.endswith(" error")):
            differences = [
                f"{np.abs(there[key] - here[key]).max():.1e}"
                for there, key in (
                    (again, f"{name} 12"),
                    (other, f"{name} 1"),
                    (other, f"{name} 12"),
                )
            ]
            errors = [f"{found[f'{name} error']:.2f}" for found in (here, other)]
            rows.writerow([name, *differences, *errors])
            print(name, *differences, *errors)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
