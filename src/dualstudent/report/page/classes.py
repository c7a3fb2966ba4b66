"""Accuracy of each class, on all and on stable samples."""

from collections.abc import Sequence
from dataclasses import dataclass

from dualstudent.report.page.run_data import RunData

MAX_SHOWN = 20  # classes; of more, the hardest are shown first


@dataclass(frozen=True)
class ClassRow:
    """Figures of one class, one value per run; None where there are no samples.

    Attributes:
        name: of the class.
        count: number of samples of the class.
        accuracy: in percent, on all of them.
        stable_accuracy: in percent, on the stable ones.
        stable_counts: number of stable ones.
    """

    name: str
    count: int
    accuracy: list[float | None]
    stable_accuracy: list[float | None]
    stable_counts: list[int]


@dataclass(frozen=True)
class ClassTable:
    """Figures of all classes.

    Attributes:
        rows: one per class.
        hardest: the classes with the lowest accuracy in the first run; empty for few classes.
    """

    rows: list[ClassRow]
    hardest: list[ClassRow]


def build_class_table(runs: Sequence[RunData]) -> ClassTable:
    """The table of runs that were evaluated on the same samples."""
    first = runs[0]
    assert first.evaluation is not None
    counts = first.evaluation.matrix.sum(dim=1).tolist()
    rows = [
        ClassRow(
            name,
            counts[number],
            [run.figures["class_accuracy"][number] for run in runs],
            [run.figures["stable_class_accuracy"][number] for run in runs],
            [run.evaluation.stable_counts[number] for run in runs if run.evaluation],
        )
        for number, name in enumerate(first.classes)
    ]
    known = [row for row in rows if row.accuracy[0] is not None]
    hardest = sorted(known, key=lambda row: row.accuracy[0] or 0.0)[: MAX_SHOWN // 2]
    return ClassTable(rows, hardest if len(rows) > MAX_SHOWN else [])
