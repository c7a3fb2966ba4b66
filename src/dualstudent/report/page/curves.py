"""How a run went, epoch by epoch."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dualstudent.report.page.chart import Axis, Chart, Point, Row, Series, thin
from dualstudent.report.page.evidence import Evidence
from dualstudent.report.page.numbers import percent

_STABLE = (
    "Share of the set whose answers a small change leaves as they are, and of which the network is "
    "confident."
)
_TERMS = {
    "classification": "How wrong the answers to labeled samples are.",
    "consistency": "How far apart the answers to two views of a sample are.",
    "stabilization": "How far a student is from the one that guides it on stable samples.",
    "logit_distance": "How far apart the two heads of a network are.",
}
_LEAST_PERCENT = 10.0  # on an axis, so that nothing looks like much


@dataclass(frozen=True)
class _Line:
    """What was measured of one network of one run: epoch → value."""

    run: int
    network: int
    name: str
    values: Mapping[int, float]


def learning_curves(runs: Sequence[Evidence]) -> list[Chart]:
    """Error and share of stable samples if there was a test, then a chart per loss term."""
    charts = list(_losses(runs))
    if all(run.verdict for run in runs):
        part = runs[0].part
        error, stable = _tested(runs, "error"), _tested(runs, "stable_share")
        wrong = f"Share of the {part} set that is answered wrong."
        charts = [
            _chart("error", f"{part.capitalize()} error", wrong, error, len(runs) == 1),
            _chart("stable", f"Stable {part} samples", _STABLE, stable, len(runs) == 1),
            *charts,
        ]
    return charts


def sentence(run: Evidence) -> str:
    """What became of the error, in words; nothing if it was looked at once or never."""
    if run.verdict is None:
        return ""
    errors = [
        (record["epoch"], record["test"][run.verdict.network]["error"])
        for record in run.metrics
        if record["test"]
    ]
    if len(errors) < 2:
        return ""
    (first, before), (last, after) = errors[0], errors[-1]
    return (
        f"The error of {run.verdict.network} went from {percent(before)} after epoch {first} to "
        f"{percent(after)} after epoch {last}."
    )


def _tested(runs: Sequence[Evidence], key: str) -> list[_Line]:
    return [
        _Line(
            place,
            number,
            _name(runs, run, network),
            {
                record["epoch"]: record["test"][network][key]
                for record in run.metrics
                if record["test"]
            },
        )
        for place, run in enumerate(runs)
        for number, network in enumerate(run.result["networks"])
    ]


def _losses(runs: Sequence[Evidence]) -> Iterator[Chart]:
    terms = dict.fromkeys(
        term
        for run in runs
        for record in run.metrics  # stages of a run may differ in their terms
        for student in record["loss"]
        for term in student
    )
    for number, term in enumerate(terms):
        caption = f"{_TERMS.get(term, '')} Mean of an epoch, with its weight.".strip()
        lines = [line for place in range(len(runs)) for line in _of_term(runs, place, term)]
        title = f"Loss: {term.replace('_', ' ')}"
        yield _chart(f"loss-{number}", title, caption, lines, len(runs) == 1)


def _of_term(runs: Sequence[Evidence], place: int, term: str) -> Iterator[_Line]:
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


def _name(runs: Sequence[Evidence], run: Evidence, network: str) -> str:
    return network if len(runs) == 1 else f"{run.name}, {network}"


def _chart(
    key: str,
    title: str,
    caption: str,
    lines: Sequence[_Line],
    alone: bool,
) -> Chart:
    """Of one run, networks differ by color; of several, runs do, and networks by their dashes."""
    unit, text = ("", _number) if key.startswith("loss") else ("%", percent)
    values = [value for line in lines for value in line.values.values()]
    epochs = thin(sorted({epoch for line in lines for epoch in line.values}))
    return Chart(
        key,
        title,
        caption,
        Axis("epoch", min(epochs[0], 1), max(epochs[-1], 2), whole=True),
        Axis.holding(unit, [*values, *([_LEAST_PERCENT] if unit else [])]),
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


def _number(value: float) -> str:
    return f"{value:.4g}"
