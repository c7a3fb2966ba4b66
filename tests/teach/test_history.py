"""The chart after a second start."""

from pathlib import Path

from dualstudent.teach.estimate import Estimate
from dualstudent.teach.history import History


def test_after_a_second_start_the_chart_is_the_same(tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")
    for labels in (40, 45, 50, 42):  # eight were undone
        history.add(Estimate(labels, 10, 8, 0.5, 0.9))
    with (tmp_path / "history.jsonl").open("a") as file:
        file.write('{"labels": 4\n')  # a kill
    history.add(Estimate(46, 11, 9, 0.5, 0.9))
    assert [point.labels for point in history.points] == [40, 42, 46]
    assert History(tmp_path / "history.jsonl").points == history.points
