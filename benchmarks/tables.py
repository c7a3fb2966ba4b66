"""What the benchmarks share: raw figures as CSV, and tables."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read_csv(path: Path) -> list[dict[str, Any]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write_table(path: Path, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A Markdown table, also printed."""
    lines = [columns, ["---"] * len(columns), *rows]
    text = "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"
    path.write_text(text)
    print(text)
