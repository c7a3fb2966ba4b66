"""How accurate are the predictions if only some of them are accepted?"""

from collections.abc import Iterator, Sequence

from dualstudent.calibration import CoveragePoint
from dualstudent.report.format import html_percent as percent
from dualstudent.report.page.chart import Axis, Chart, Mark, Point, Row, Series, Shape
from dualstudent.report.page.evaluation import Evaluation
from dualstudent.report.page.run_data import RunData


def draw_coverage(runs: Sequence[RunData]) -> Chart:
    """Accuracy by share accepted, with marks for stable and for agreed predictions."""
    lines: list[Series] = []
    marks: list[Mark] = []
    for color, run in enumerate(runs):
        assert run.evaluation is not None
        prefix = "" if len(runs) == 1 else f"{run.name}: "
        lines += _draw_lines(color, run.evaluation, prefix)
        marks += _draw_marks(color, run.evaluation, prefix)
    lowest = min(
        point.y
        for point in [*(p for line in lines for p in line.points if p), *(m.point for m in marks)]
    )
    return Chart(
        "coverage",
        "Accuracy by share accepted",
        "From left to right, more and more predictions are accepted: the most confident first or, "
        "dashed, the most stable first. The marks show the accuracy if exactly the stable "
        "predictions are accepted, or the stable ones on which all students agree.",
        Axis("share accepted in %", 0, 100),
        Axis("%", 10 * (lowest // 10) if lowest < 100 else 90, 100),
        [Row(number, f"the first {number} %") for number in range(1, 101)],
        lines,
        marks=marks,
    )


def describe(run: RunData) -> Iterator[str]:
    """Sentences about the stable and the agreed predictions."""
    evaluation = run.evaluation
    assert evaluation is not None
    part = f"the {evaluation.samples:,} {run.part} {evaluation.noun}"
    yield _describe_point(f"Of {part}, {{}} are stable", evaluation.stable)
    if len(evaluation.headline) > 1:
        names = " and ".join(evaluation.headline)
        yield _describe_point(f"{{}} are stable, and {names} agree", evaluation.agreed)


def _describe_point(text: str, point: CoveragePoint) -> str:
    found = text.format(percent(100 * point.coverage))
    if point.accuracy is None:
        return f"{found}."
    return f"{found}; of these, {percent(100 * point.accuracy)} are classified correctly."


def _draw_lines(color: int, evaluation: Evaluation, prefix: str) -> Iterator[Series]:
    yield Series(f"{prefix}most confident first", _points(evaluation.coverage), color)
    yield Series(f"{prefix}most stable first", _points(evaluation.by_stability), color, dash=1)


def _points(curve: Sequence[CoveragePoint]) -> list[Point | None]:
    return [
        None
        if point.accuracy is None
        else Point(number, 100 * point.accuracy, percent(100 * point.accuracy) + _threshold(point))
        for number, point in enumerate(curve, start=1)
    ]


def _threshold(point: CoveragePoint) -> str:
    return "" if point.threshold is None else f" (confidence from {100 * point.threshold:.1f} %)"


def _draw_marks(color: int, evaluation: Evaluation, prefix: str) -> Iterator[Mark]:
    marks: list[tuple[str, Shape, CoveragePoint]] = [("stable", "circle", evaluation.stable)]
    if len(evaluation.headline) > 1:
        marks.append(("stable and agreed", "diamond", evaluation.agreed))
    for name, shape, point in marks:
        if point.accuracy is not None:
            x, y = 100 * point.coverage, 100 * point.accuracy
            yield Mark(Point(x, y, f"{percent(y)} of {percent(x)}"), prefix + name, color, shape)
