"""Is the confidence of a network as high as its accuracy?"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dualstudent.report.format import html_percent as percent
from dualstudent.report.page.chart import Axis, Bar, Chart, Point, Row, Series
from dualstudent.report.page.evaluation import Calibration, Evaluation
from dualstudent.report.page.run_data import RunData


def draw_reliability(runs: Sequence[RunData]) -> Chart:
    """Accuracy by confidence; for a single run, bars show how many predictions are in each bin."""
    evaluations = [run.evaluation for run in runs if run.evaluation]
    lines = [
        series
        for number, (run, evaluation) in enumerate(zip(runs, evaluations, strict=True))
        for series in _draw_lines(number, run, evaluation, alone=len(runs) == 1)
    ]
    bins, total = evaluations[0].calibration.bins, evaluations[0].samples
    used = [number for number in range(len(bins)) if any(line.points[number] for line in lines)]
    bars = [
        Bar(100 * each.lower, 100 * each.upper, 100 * each.count / total)
        for each in bins
        if each.count and len(runs) == 1
    ]
    return Chart(
        "reliability",
        "Accuracy by confidence",
        "Each dot stands for the predictions in one range of confidence: their mean confidence and "
        "the share that is correct. On the diagonal, accuracy equals confidence; below it, the "
        "network is overconfident."
        + (" The bars show the share of all predictions in each range." if bars else ""),
        Axis("confidence in %", 0, 100),
        Axis("%", 0, 100),
        [
            Row(50 * (each.lower + each.upper), f"{100 * each.lower:.0f}–{100 * each.upper:.0f} %")
            for each in (bins[number] for number in used)
        ],
        [replace(line, points=[line.points[number] for number in used]) for line in lines],
        bars=bars,
        diagonal=True,
    )


def describe(run: RunData) -> Iterator[str]:
    """Sentences about the calibration error, and what a temperature changes."""
    evaluation = run.evaluation
    assert evaluation is not None
    yield (
        "On average, confidence and accuracy differ by "
        f"{percent(100 * evaluation.calibration.error)} (ECE, expected calibration error)."
    )
    if evaluation.temperature and evaluation.calibrated:
        yield (
            f"The network is {'over' if evaluation.temperature > 1 else 'under'}confident: the "
            f"temperature that fits the validation {evaluation.noun} best is "
            f"{evaluation.temperature:.2f}. With it, they differ by "
            f"{percent(100 * evaluation.calibrated.error)} on the same {evaluation.noun}."
        )
    elif run.part != "test":
        yield f"There are too few validation {evaluation.noun} to fit a temperature."


def explain_missing_temperature(run: RunData) -> str:
    """Why no temperature is fitted on a test part; else nothing."""
    if run.part != "test" or run.evaluation is None:
        return ""
    return (
        "No temperature was fitted: there is no validation part, and fitted on the test part the "
        "calibration error would come out too low. (The command label fits one there, for its "
        f"trust in unlabeled {run.evaluation.noun}, and says so.)"
    )


def _draw_lines(number: int, run: RunData, evaluation: Evaluation, alone: bool) -> Iterator[Series]:
    yield _draw_line("accuracy" if alone else run.name, evaluation.calibration, number, 0)
    if evaluation.temperature and evaluation.calibrated:
        name = f"with temperature {evaluation.temperature:.2f}"
        full_name = name if alone else f"{run.name}, {name}"
        yield _draw_line(full_name, evaluation.calibrated, number + alone, 1)


def _draw_line(name: str, calibration: Calibration, color: int, dash: int) -> Series:
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
