"""Learning curves: error, stability and losses by epoch."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dualstudent.report.format import html_percent as percent
from dualstudent.report.page.chart import Axis, Chart, Point, Row, Series, thin
from dualstudent.report.page.run_data import RunData

_STABLE = (
    "Share of the samples whose prediction is confident and stays the same after a small change."
)
_TERMS = {
    "classification": "Cross-entropy on labeled samples.",
    "consistency": "Difference between the predictions for two views of a sample.",
    "stabilization": "Difference between a student and the one that guides it, on stable samples.",
    "logit_distance": "Difference between the two heads of a network.",
    "pseudo_labels": "Cross-entropy on labels that the network itself gave to unlabeled samples.",
    "fairness": "Negative if the classes of the predictions that count are well separated.",
    "balance": "Distance of the mean prediction from equally many samples of each class.",
    "entropy": "Entropy of the predictions.",
    "negative_labels": "Probability given to classes that the other student excludes.",
}
_MIN_AXIS_PERCENT = 10.0  # so that tiny values look tiny


@dataclass(frozen=True)
class _Line:
    """Values of one network of one run: epoch → value."""

    run: int
    network: int
    name: str
    values: Mapping[int, float]


def draw_learning_curves(runs: Sequence[RunData]) -> list[Chart]:
    """Charts of error and stable samples, if the runs were evaluated, and of each loss term."""
    charts = list(_draw_losses(runs))
    if all(run.evaluation for run in runs):
        part = runs[0].part
        error, stable = _collect_tests(runs, "error"), _collect_tests(runs, "stable_share")
        wrong = f"Share of the {part} samples that are misclassified."
        charts = [
            _draw_chart("error", f"{part.capitalize()} error", wrong, error, len(runs) == 1),
            _draw_chart("stable", f"Stable {part} samples", _STABLE, stable, len(runs) == 1),
            *charts,
        ]
    return charts


def describe(run: RunData) -> str:
    """A sentence on first and last error; nothing with fewer than two evaluations."""
    if run.evaluation is None:
        return ""
    errors = [
        (record["epoch"], record["test"][run.evaluation.network]["error"])
        for record in run.metrics
        if run.evaluation.network in record["test"]  # an earlier stage may have had other networks
    ]
    if len(errors) < 2:
        return ""
    (first, before), (last, after) = errors[0], errors[-1]
    return (
        f"The error of {run.evaluation.network} went from {percent(before)} after epoch {first} to "
        f"{percent(after)} after epoch {last}."
    )


def _collect_tests(runs: Sequence[RunData], key: str) -> list[_Line]:
    return [
        _Line(
            place,
            number,
            _name(runs, run, network),
            {
                record["epoch"]: record["test"][network][key]
                for record in run.metrics
                if network in record["test"]
            },
        )
        for place, run in enumerate(runs)
        for number, network in enumerate(run.result["networks"])
    ]


def _draw_losses(runs: Sequence[RunData]) -> Iterator[Chart]:
    terms = dict.fromkeys(
        term
        for run in runs
        for record in run.metrics  # stages of a run may differ in their terms
        for student in record["loss"]
        for term in student
    )
    for number, term in enumerate(terms):
        caption = f"{_TERMS.get(term, '')} Mean over an epoch, times its weight.".strip()
        lines = [line for place in range(len(runs)) for line in _collect_term(runs, place, term)]
        title = f"Loss: {term.replace('_', ' ')}"
        yield _draw_chart(f"loss-{number}", title, caption, lines, len(runs) == 1)


def _collect_term(runs: Sequence[RunData], place: int, term: str) -> Iterator[_Line]:
    run = runs[place]
    students = max(len(record["loss"]) for record in run.metrics)
    for number in range(students):
        values = {
            record["epoch"]: record["loss"][number][term]
            for record in run.metrics
            if number < len(record["loss"]) and term in record["loss"][number]
        }
        if values:
            name = "student" if students == 1 else f"student{number + 1}"
            yield _Line(place, number, _name(runs, run, name), values)


def _name(runs: Sequence[RunData], run: RunData, network: str) -> str:
    return network if len(runs) == 1 else f"{run.name}, {network}"


def _draw_chart(
    key: str,
    title: str,
    caption: str,
    lines: Sequence[_Line],
    alone: bool,
) -> Chart:
    """Colors tell networks apart or, with several runs, the runs; then dashes tell networks."""
    unit, text = ("", _format_number) if key.startswith("loss") else ("%", percent)
    values = [value for line in lines for value in line.values.values()]
    epochs = thin(sorted({epoch for line in lines for epoch in line.values}))
    return Chart(
        key,
        title,
        caption,
        Axis("epoch", min(epochs[0], 1), max(epochs[-1], 2), whole=True),
        Axis.covering(unit, [*values, *([_MIN_AXIS_PERCENT] if unit else [])]),
        [Row(epoch, f"epoch {epoch}") for epoch in epochs],
        [
            Series(
                line.name,
                [
                    Point(epoch, line.values[epoch], text(line.values[epoch]))
                    if epoch in line.values
                    else None
                    for epoch in epochs
                ],
                color=line.network if alone else line.run,
                dash=0 if alone else line.network,
            )
            for line in lines
        ],
    )


def _format_number(value: float) -> str:
    return f"{value:.4g}"
