"""The result of runs in a few figures and plain words."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt

from dualstudent.report.format import format_count, format_duration
from dualstudent.report.page.evidence import Evidence
from dualstudent.report.page.numbers import percent


@dataclass(frozen=True)
class Fact:
    """A figure, what it is, and what to know about it."""

    name: str
    value: str
    note: str


def origin(run: Evidence) -> str:
    """What was trained, on what, for how long."""
    others = f" and {run.taught:,} unlabeled samples" if run.taught else " alone"
    epochs = run.result["epochs"]
    return (
        f"{run.recipe.method.name} with {run.recipe.network.name}, from {run.labeled:,} labels"
        f"{others}, {epochs:,} {'epoch' if epochs == 1 else 'epochs'} in "
        f"{format_duration(run.result['seconds'])}."
    )


def lead(run: Evidence) -> str:
    """What a reader should take away."""
    verdict = run.verdict
    if verdict is None:
        return (
            "This run was not evaluated: there were neither test samples nor labels to validate "
            "on. So this page has its losses and its recipe, but nothing about how good it is."
        )
    figures = run.figures
    right, stable = figures["stable_accuracy"], percent(figures["stable_share"])
    those = "" if right is None else f"; of those {percent(right)} are right"
    return (
        f"Of the {verdict.samples:,} {run.part} {verdict.noun} {verdict.network} answers "
        f"{percent(100 - figures['error'])} right. {stable} of its answers are stable{those}."
    )


def conclusion(runs: Sequence[Evidence]) -> str:
    """Which of several runs is the best, and whether that could be chance.

    Chance is what moves the difference of two errors by one standard error, each of them a share of
    as many samples.
    """
    best, second = sorted(runs, key=lambda run: run.result["error"])[:2]
    assert best.verdict is not None
    low, high = best.result["error"], second.result["error"]
    tested = f"the same {best.verdict.samples:,} {best.part} {best.verdict.noun}"
    if low == high:
        return f"{best.name} and {second.name} have the same error on {tested}: {percent(low)}."
    deviation = sqrt(sum(error * (100 - error) for error in (low, high)) / best.verdict.samples)
    chance = f", which so few {best.verdict.noun} cannot tell from chance"
    return (
        f"{best.name} has the lowest error: {percent(low)}, {high - low:.2f} points below "
        f"{second.name}{chance if high - low < deviation else ''}. All were evaluated on {tested}."
    )


def stable_means(run: Evidence) -> str:
    """What a stable answer is."""
    assert run.verdict is not None
    return (
        "An answer is stable if it is the same after a small change of the "
        f"{run.verdict.noun.removesuffix('s')}, and confident."
    )


def in_use(runs: Sequence[Evidence]) -> str:
    """Which of their networks the commands take; nothing if there is no choice."""
    chosen = [
        run.verdict.network if len(runs) == 1 else f"{run.verdict.network} of {run.name}"
        for run in runs
        if run.verdict and len(run.result["networks"]) > 1
    ]
    return f"The commands predict and export use {', '.join(chosen)}." if chosen else ""


def facts(run: Evidence) -> Iterator[Fact]:
    """The figures of an evaluated run, by an honest protocol: those of its last epoch."""
    verdict, figures = run.verdict, run.figures
    assert verdict is not None
    names = " and ".join(verdict.headline)
    mean = f"mean of {names}" if len(verdict.headline) > 1 else names
    yield Fact(f"{run.part} error", percent(run.result["error"]), f"{mean}, last epoch")
    yield Fact("stable answers", percent(figures["stable_share"]), f"of {verdict.network}")
    accuracy = figures["stable_accuracy"]
    yield Fact(
        "right where stable",
        "–" if accuracy is None else percent(accuracy),
        f"against {percent(100 - figures['error'])} of all",
    )
    yield Fact(
        "calibration error",
        percent(100 * verdict.calibration.error),
        "between confidence and accuracy",
    )


def left_out(run: Evidence) -> str:
    """How many images could not be read; nothing if all could."""
    if not run.left_out:
        return ""
    return f"{format_count(run.left_out, 'image')} could not be read and took no part."
