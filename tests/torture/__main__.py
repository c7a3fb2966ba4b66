"""``python -m tests.torture``: do harm to runs and count what came of it.

Every line of the table is written as soon as it is known. Those that are in it already are not
done again, so that a torture that was interrupted goes on.
"""

import argparse
import csv
import sys
import tempfile
import time
from pathlib import Path

import torch

from tests.torture.checks import Place, Tally, list_checks

COLUMNS = ("check", "of", "outcomes", "wrong", "seconds")


def main() -> int:
    """Return 1 if anything happened that must not happen."""
    parser = argparse.ArgumentParser(description="Do harm to runs and count what came of it.")
    parser.add_argument("table", type=Path, help="CSV file to write, or to go on with")
    parser.add_argument("--short", action="store_true", help="a few of each, in seconds")
    parser.add_argument("--only", default="", help="only checks that begin so")
    options = parser.parse_args()
    torch.set_num_threads(1)  # children of threads cannot be forked
    done, wrong = read_done(options.table), 0
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder))
        for check, subject, harm in list_checks(options.short):
            if (check, subject) in done or not check.startswith(options.only):
                continue
            begun = time.monotonic()
            tally = harm(place)
            wrong += len(tally.wrong)
            append(options.table, check, subject, tally, time.monotonic() - begun)
    return int(wrong > 0)


def read_done(table: Path) -> set[tuple[str, str]]:
    """The checks without anything wrong that are in the table."""
    if not table.is_file():
        return set()
    with table.open(newline="") as file:
        return {(row["check"], row["of"]) for row in csv.DictReader(file) if row["wrong"] == "0"}


def append(table: Path, check: str, subject: str, tally: Tally, seconds: float) -> None:
    """Print a line and add it to the table."""
    outcomes = ", ".join(f"{count} {name}" for name, count in sorted(tally.counts.items()) if count)
    print(f"{check} {subject}: {outcomes}; {len(tally.wrong)} wrong", flush=True)
    for each in tally.wrong:
        print(f"  wrong: {each}", file=sys.stderr, flush=True)
    table.parent.mkdir(parents=True, exist_ok=True)
    is_new = not table.is_file()
    with table.open("a", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        if is_new:
            lines.writerow(COLUMNS)
        lines.writerow((check, subject, outcomes, len(tally.wrong), f"{seconds:.1f}"))


if __name__ == "__main__":
    sys.exit(main())
