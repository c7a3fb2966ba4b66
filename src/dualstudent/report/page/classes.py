"""How good a run is at each class, on stable and on all samples."""

from collections.abc import Sequence
from dataclasses import dataclass

from dualstudent.report.page.evidence import Evidence

SHOWN = 20  # classes; of more, the hardest are shown and the rest can be unfolded


@dataclass(frozen=True)
class ClassRow:
    """Of one class, in percent; one figure per run, None where there is no such sample.

    Attributes:
        name: of the class.
        count: how many samples are truly of it.
        everywhere: accuracy on all of them.
        stable: accuracy on those that are stable.
        stable_counts: how many those are.
    """

    name: str
    count: int
    everywhere: list[float | None]
    stable: list[float | None]
    stable_counts: list[int]


@dataclass(frozen=True)
class ClassTable:
    """All classes in their order; and, if they are many, the hardest first.

    Attributes:
        rows: a class each.
        hardest: those with the lowest accuracy of the first run; empty for few classes.
    """

    rows: list[ClassRow]
    hardest: list[ClassRow]


def class_table(runs: Sequence[Evidence]) -> ClassTable:
    """Of runs that were evaluated, on the same samples."""
    first = runs[0]
    assert first.verdict is not None
    counts = first.verdict.matrix.sum(dim=1).tolist()
    rows = [
        ClassRow(
            name,
            counts[place],
            [run.figures["class_accuracy"][place] for run in runs],
            [run.figures["stable_class_accuracy"][place] for run in runs],
            [run.verdict.stable_counts[place] for run in runs if run.verdict],
        )
        for place, name in enumerate(first.classes)
    ]
    known = [row for row in rows if row.everywhere[0] is not None]
    hardest = sorted(known, key=lambda row: row.everywhere[0] or 0.0)[: SHOWN // 2]
    return ClassTable(rows, hardest if len(rows) > SHOWN else [])
