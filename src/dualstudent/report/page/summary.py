"""The result of runs in a few figures and plain words."""

from collections.abc import Iterator
from dataclasses import dataclass

from dualstudent.report.page.evidence import Evidence
from dualstudent.report.page.numbers import percent
from dualstudent.report.tables import duration


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
        f"{duration(run.result['seconds'])}."
    )


def lead(run: Evidence) -> str:
    """What a reader should take away."""
    verdict = run.verdict
    if verdict is None:
        return (
            "This run was not evaluated: there were neither test samples nor labels to validate "
            "on. So this page has its losses and its recipe, but nothing about how good it is."
        )
    stable, accuracy = run.figures["stable_share"], run.figures["stable_accuracy"]
    those = "" if accuracy is None else f"; among those it is right in {percent(accuracy)}"
    return (
        f"Of the {verdict.samples:,} {run.part} {verdict.noun} it is sure of {percent(stable)}"
        f"{those}."
    )


def facts(run: Evidence) -> Iterator[Fact]:
    """The figures of an evaluated run, by an honest protocol: those of its last epoch."""
    verdict, figures = run.verdict, run.figures
    assert verdict is not None
    names = " and ".join(verdict.headline)
    mean = f"mean of {names}" if len(verdict.headline) > 1 else names
    yield Fact(f"{run.part} error", percent(run.result["error"]), f"{mean}, last epoch")
    yield Fact("sure of", percent(figures["stable_share"]), f"stable answers of {verdict.network}")
    accuracy = figures["stable_accuracy"]
    yield Fact(
        "right where sure",
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
    images = "1 image" if run.left_out == 1 else f"{run.left_out:,} images"
    return f"{images} could not be read and took no part."
