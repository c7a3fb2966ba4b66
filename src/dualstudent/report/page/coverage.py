"""How good are the answers if the doubtful ones go to a person?"""

from collections.abc import Iterator, Sequence

from dualstudent.calibration import CoveragePoint
from dualstudent.report.page.chart import Axis, Chart, Mark, Point, Row, Series, Shape
from dualstudent.report.page.evidence import Evidence
from dualstudent.report.page.numbers import percent
from dualstudent.report.page.verdict import Verdict


def coverage_chart(runs: Sequence[Evidence]) -> Chart:
    """Accuracy against the share that is believed, with the stable and the agreed point."""
    verdicts = [run.verdict for run in runs if run.verdict]
    rows = [Row(percent, f"the first {percent} %") for percent in range(1, 101)]
    lines = [
        line
        for place, (run, verdict) in enumerate(zip(runs, verdicts, strict=True))
        for line in _lines(place, verdict, "" if len(runs) == 1 else f"{run.name}: ")
    ]
    marks = [
        mark
        for place, (run, verdict) in enumerate(zip(runs, verdicts, strict=True))
        for mark in _marks(place, verdict, "" if len(runs) == 1 else f"{run.name}: ")
    ]
    lowest = min(
        point.y
        for point in [*(p for line in lines for p in line.points if p), *(m.point for m in marks)]
    )
    return Chart(
        "coverage",
        "Accuracy by share believed",
        "From left to right, more and more answers are believed: those with the highest confidence "
        "first or, dashed, those that a small change of the sample moves least. The marks show "
        "what comes of believing the stable ones, and those that are stable and on which all "
        "students agree.",
        Axis("share believed in %", 0, 100),
        Axis("%", 10 * (lowest // 10) if lowest < 100 else 90, 100),
        rows,
        lines,
        marks=marks,
    )


def sentences(run: Evidence) -> Iterator[str]:
    """The stable and the agreed point in words."""
    verdict = run.verdict
    assert verdict is not None
    everything = f"the {verdict.samples:,} {run.part} {verdict.noun}"
    yield _in_words(f"Of {everything}, {{}} are stable", verdict.stable)
    if len(verdict.headline) > 1:
        names = " and ".join(verdict.headline)
        yield _in_words(f"{{}} are stable, and {names} agree", verdict.agreed)


def _in_words(text: str, point: CoveragePoint) -> str:
    found = text.format(percent(100 * point.coverage))
    if point.accuracy is None:
        return f"{found}."
    return f"{found}; among those it is right in {percent(100 * point.accuracy)}."


def _lines(place: int, verdict: Verdict, prefix: str) -> Iterator[Series]:
    surest, steadiest = f"{prefix}most confident first", f"{prefix}most stable first"
    yield Series(surest, _points(verdict.coverage), color=place)
    yield Series(steadiest, _points(verdict.by_stability), color=place, dash=1)


def _points(curve: Sequence[CoveragePoint]) -> list[Point | None]:
    return [
        None
        if point.accuracy is None
        else Point(number, 100 * point.accuracy, percent(100 * point.accuracy) + _from(point))
        for number, point in enumerate(curve, start=1)
    ]


def _from(point: CoveragePoint) -> str:
    return "" if point.threshold is None else f" (confidence from {100 * point.threshold:.1f} %)"


def _marks(place: int, verdict: Verdict, prefix: str) -> Iterator[Mark]:
    marks: list[tuple[str, Shape, CoveragePoint]] = [("stable", "circle", verdict.stable)]
    if len(verdict.headline) > 1:
        marks.append(("stable and agreed", "diamond", verdict.agreed))
    for name, shape, point in marks:
        if point.accuracy is not None:
            x, y = 100 * point.coverage, 100 * point.accuracy
            yield Mark(Point(x, y, f"{percent(y)} of {percent(x)}"), prefix + name, place, shape)
