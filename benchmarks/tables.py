"""What the benchmarks share: raw figures as CSV, tables, and pictures."""

import csv
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from matplotlib.axes import Axes


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read_csv(path: Path) -> list[dict[str, Any]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def run_trials(
    path: Path, trials: Iterable[dict[str, Any]], measure: Callable[..., dict[str, Any]]
) -> list[dict[str, Any]]:
    """Measure the trials that a CSV file lacks, adding each to it; returns all as text.

    Args:
        path: the file; a row has the keys of its trial and what was measured.
        trials: what tells each from the others, as arguments of ``measure``.
        measure: returns the figures of a trial.
    """
    rows = read_csv(path) if path.exists() else []
    for trial in trials:
        if not any(all(row[key] == str(trial[key]) for key in trial) for row in rows):
            found = trial | measure(**trial)
            print(", ".join(f"{key} {value}" for key, value in found.items()), flush=True)
            rows.append({key: str(value) for key, value in found.items()})
            write_csv(path, rows)
    return rows


def write_table(path: Path, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A Markdown table, also printed."""
    lines = [columns, ["---"] * len(columns), *rows]
    text = "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"
    path.write_text(text)
    print(text)


def spread(values: Sequence[float]) -> str:
    """Mean and standard deviation; the latter needs two values."""
    mean = f"{fmean(values):.2f}"
    return f"{mean} ± {stdev(values):.2f}" if len(values) > 1 else mean


def spread_of_differences(values: Sequence[float], others: Sequence[float]) -> str:
    """Of each value minus the other one of the same seed, as both had the same labels."""
    return spread([value - other for value, other in zip(values, others, strict=True)])


def light_frame(axes: Axes, title: str) -> None:
    """No box, a light grid behind the data, the title flush left."""
    axes.set_title(title, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
