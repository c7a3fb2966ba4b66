"""The result of runs in a few figures and sentences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt

from dualstudent.report.format import format_count, format_duration, format_interval
from dualstudent.report.format import html_percent as percent
from dualstudent.report.page.run_data import RunData
from dualstudent.training.crossvalidation import LABELS_ALONE
from dualstudent.training.measured import Measured


@dataclass(frozen=True)
class Fact:
    """A figure: what it is, its value, and a note."""

    name: str
    value: str
    note: str


def find_error(run: RunData) -> float | None:
    """The one number of a run: the error of the model that ``predict`` uses, in percent.

    Without held-out images, that is its error in cross-validation; None if nothing was measured.
    """
    if run.evaluation is not None:
        return float(run.figures["error"])
    if run.comparison is not None:
        return find_cross_validated(run)[1].error
    return None


def find_cross_validated(run: RunData) -> tuple[str, Measured]:
    """Name and error in cross-validation of the model that is used."""
    assert run.comparison is not None
    rows = run.comparison.rows
    if run.gain is not None and run.gain.labels_only_used and LABELS_ALONE in rows:
        return LABELS_ALONE, rows[LABELS_ALONE]
    return next(iter(rows.items()))


def name_error(run: RunData) -> str:
    """What :func:`find_error` is the error of."""
    if run.evaluation is None:
        return "error in cross-validation"
    use = "" if run.is_refit else ", which predict uses"
    return f"{run.part} error of {run.evaluation.network}{use}"


def rank(runs: Sequence[RunData]) -> list[tuple[int, RunData]]:
    """Place on the page and run, the lowest error first."""
    return sorted(enumerate(runs), key=lambda ranked: ranked[1].figures["error"])


def describe_training(run: RunData) -> str:
    """Method, network, data and time."""
    others = f" and {run.unlabeled:,} unlabeled samples" if run.unlabeled else " alone"
    epochs = run.result["epochs"]
    return (
        f"{run.recipe.method.name} with {run.recipe.network.name}, from {run.labeled:,} labels"
        f"{others}, {epochs:,} {'epoch' if epochs == 1 else 'epochs'} in "
        f"{format_duration(run.result['seconds'])}."
    )


def describe_result(run: RunData) -> str:
    """Accuracy, and accuracy on stable samples."""
    evaluation = run.evaluation
    if evaluation is None and run.comparison is not None:
        name, found = find_cross_validated(run)
        high, low = (100 - end for end in found.interval)
        return (
            f"In cross-validation, {name} predicts {percent(100 - found.error)} of "
            f"{run.comparison.images:,} hidden labels correctly (95 % interval "
            f"{format_interval((low, high))}). There is no test part and no validation part."
        )
    if evaluation is None:
        return (
            "This run was not evaluated, as it has no test part and no validation part. So this "
            "page shows its losses and its recipe, but not how accurate it is."
        )
    figures = run.figures
    correct, stable = figures["stable_accuracy"], percent(figures["stable_share"])
    among_stable = "" if correct is None else f"; of these, {percent(correct)} are correct"
    return (
        f"{evaluation.network} classifies {percent(100 - figures['error'])} of the "
        f"{evaluation.samples:,} {run.part} {evaluation.noun} correctly. {stable} of its "
        f"predictions are stable{among_stable}."
    )


def compare(runs: Sequence[RunData]) -> str:
    """Which of several runs has the lowest error, and whether that could be chance.

    It could if the difference is below its standard error, with independent binomial errors.
    """
    (_, best), (_, second) = rank(runs)[:2]
    assert best.evaluation is not None
    low, high = best.figures["error"], second.figures["error"]
    samples, noun = best.evaluation.samples, best.evaluation.noun
    tested = f"the same {samples:,} {best.part} {noun}"
    if low == high:
        return f"{best.name} and {second.name} have the same error on {tested}: {percent(low)}."
    deviation = sqrt(sum(error * (100 - error) for error in (low, high)) / samples)
    chance = f", which may be chance with so few {noun}"
    return (
        f"{best.name} has the lowest error: {percent(low)}, {high - low:.2f} points below "
        f"{second.name}{chance if high - low < deviation else ''}. All were evaluated on {tested}."
    )


def define_stable(run: RunData) -> str:
    """What a stable prediction is."""
    assert run.evaluation is not None
    return (
        "A prediction is stable if it stays the same after a small change of the "
        f"{run.evaluation.noun.removesuffix('s')}, and is confident before or after it."
    )


def describe_means(runs: Sequence[RunData]) -> str:
    """The mean errors that tables of methods report; nothing for runs with one network each."""
    means = [
        f"{percent(run.result['error'])} for {' and '.join(run.evaluation.headline)}"
        + (f" of {run.name}" if len(runs) > 1 else "")
        for run in runs
        if run.evaluation and len(run.evaluation.headline) > 1
    ]
    return f"Tables of methods report the mean error, {', '.join(means)}." if means else ""


def list_facts(run: RunData) -> Iterator[Fact]:
    """How far an evaluated run can be trusted, after its last epoch."""
    evaluation, figures = run.evaluation, run.figures
    assert evaluation is not None
    yield Fact("stable predictions", percent(figures["stable_share"]), f"of {evaluation.network}")
    accuracy = figures["stable_accuracy"]
    yield Fact(
        "accuracy on stable",
        "–" if accuracy is None else percent(accuracy),
        f"on all {percent(100 - figures['error'])}",
    )
    yield Fact(
        "calibration error",
        percent(100 * evaluation.calibration.error),
        "between confidence and accuracy",
    )


def count_unreadable(run: RunData) -> str:
    """How many images could not be read; nothing if all could."""
    if not run.unreadable:
        return ""
    return (
        f"{format_count(run.unreadable, 'image')} could not be read and "
        f"{'was' if run.unreadable == 1 else 'were'} skipped."
    )
