"""Is the network as often right as it says?"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dualstudent.report.page.chart import Axis, Bar, Chart, Point, Row, Series
from dualstudent.report.page.evidence import Evidence
from dualstudent.report.page.numbers import percent
from dualstudent.report.page.verdict import Calibration, Verdict


def reliability_chart(runs: Sequence[Evidence]) -> Chart:
    """Accuracy by confidence; the bars say how many answers are behind it."""
    verdicts = [run.verdict for run in runs if run.verdict]
    lines = [
        series
        for place, (run, verdict) in enumerate(zip(runs, verdicts, strict=True))
        for series in _series(place, run, verdict, alone=len(runs) == 1)
    ]
    bins, total = verdicts[0].calibration.bins, verdicts[0].samples
    used = [place for place in range(len(bins)) if any(line.points[place] for line in lines)]
    bars = [
        Bar(100 * each.lower, 100 * each.upper, 100 * each.count / total)
        for each in bins
        if each.count and len(runs) == 1
    ]
    return Chart(
        "reliability",
        "Accuracy by confidence",
        "Each dot holds the answers of one range of confidence: how sure the network is of them "
        "on average, and how many are right. On the diagonal it is as often right as it says; "
        "below it, it is too sure."
        + (" The bars are the share of all answers in each range." if bars else ""),
        Axis("confidence in %", 0, 100),
        Axis("%", 0, 100),
        [
            Row(50 * (each.lower + each.upper), f"{100 * each.lower:.0f}–{100 * each.upper:.0f} %")
            for each in (bins[place] for place in used)
        ],
        [replace(line, points=[line.points[place] for place in used]) for line in lines],
        bars=bars,
        diagonal=True,
    )


def sentences(run: Evidence) -> Iterator[str]:
    """How far confidence and accuracy are apart, and what a temperature does about it."""
    verdict = run.verdict
    assert verdict is not None
    yield (
        f"Confidence and accuracy are {percent(100 * verdict.calibration.error)} apart on average "
        "(ECE, expected calibration error)."
    )
    if verdict.temperature and verdict.tempered:
        yield (
            f"It is too {'sure' if verdict.temperature > 1 else 'modest'}: the temperature that "
            f"suits the validation {verdict.noun} best is {verdict.temperature:.2f}. With it, and "
            f"on those same {verdict.noun}, the two are {percent(100 * verdict.tempered.error)} "
            "apart."
        )
    elif run.part != "test":
        yield f"The validation {verdict.noun} are too few to fit a temperature."


def remark(run: Evidence) -> str:
    """Why there is no temperature, if there can be none."""
    if run.part != "test" or run.verdict is None:
        return ""
    return (
        "No temperature was fitted: there is no validation part, and on the test set it would make "
        "the calibration error too good. (dualstudent label does fit one there, for its trust in "
        f"unlabeled {run.verdict.noun}, and says so.)"
    )


def _series(place: int, run: Evidence, verdict: Verdict, alone: bool) -> Iterator[Series]:
    yield _line("accuracy" if alone else run.name, verdict.calibration, place, 0)
    if verdict.temperature and verdict.tempered:
        name = f"with temperature {verdict.temperature:.2f}"
        line = name if alone else f"{run.name}, {name}"
        yield _line(line, verdict.tempered, place + alone, 1)


def _line(name: str, calibration: Calibration, color: int, dash: int) -> Series:
    points = [
        None
        if each.accuracy is None or each.confidence is None
        else Point(
            100 * each.confidence,
            100 * each.accuracy,
            f"{percent(100 * each.accuracy)} of {each.count:,}",
        )
        for each in calibration.bins
    ]
    return Series(name, points, color, dash)
