"""How commands print the result of a run.

A run is evaluated on its test part, else on its validation part, else not at all.
"""

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from dualstudent.cli.console import console, print_line
from dualstudent.report.format import format_count, format_duration, format_interval, format_percent

if TYPE_CHECKING:
    from dualstudent.data.prepared import PreparedData
    from dualstudent.experiments.table import ComparisonTable
    from dualstudent.training.measured import MeasuredErrors
    from dualstudent.training.run import Run


def build_result_table(
    rows: Mapping[str, Mapping[str, Any]], title: str = "", times: Mapping[str, str] | None = None
) -> Table:
    """One row per network: error, accuracy on all and on stable samples, share of stable samples.

    Args:
        rows: label → figures of one network, as in a run's result.
        title: above the table.
        times: label → how long the training took, for a column of its own.
    """
    table = Table(title=Text(title), title_justify="left")  # a path may look like markup
    table.add_column("network", no_wrap=True)
    columns = ["error", "accuracy", "on stable", "share stable"]
    for column in [*columns, "time"] if times else columns:
        table.add_column(column, justify="right")
    for label, figures in rows.items():
        stable = figures["stable_accuracy"]
        table.add_row(
            Text(label),
            format_percent(figures["error"]),
            format_percent(100 - figures["error"]),
            "–" if stable is None else format_percent(stable),
            format_percent(figures["stable_share"]),
            *([times.get(label, "")] if times else []),
        )
    return table


def complete_run(run: "Run", data: "PreparedData | None" = None) -> None:
    """Compare a finished run, and train it on all labels, as far as it asks for that.

    Args:
        run: the run.
        data: that it was trained on, if they are at hand.
    """
    from dualstudent.progress import show_progress
    from dualstudent.worth import compare, refit_on_all_labels, train_on_labels

    name = run.folder.name
    with show_progress(console) as progress:
        train_on_labels(run, progress.make_callback(f"{name}, labels alone"), data)
    with show_progress(console, "epochs") as progress:
        compare(run, progress.make_callback(f"{name}, cross-validation"), data)
    with show_progress(console) as progress:
        refit_on_all_labels(run, progress.make_callback(f"{name}, all labels"))


def print_comparison(title: str, shown: "ComparisonTable", where: str) -> None:
    """Print the table of an experiment, what it says, how it was made, and where its files are."""
    table = Table(*shown.columns, title=Text(title), title_justify="left")
    for row in shown.rows:
        table.add_row(*map(Text, row))  # a name may look like markup
    console.print(table)
    for sentence in (*shown.order, *shown.notes, where):
        print_line(console, sentence)


def describe_network(run: "Run", network: str, measured: bool = False) -> str:
    """A network that is used and its error, such as "student1, 8.85 % test error".

    Args:
        run: the run.
        network: name of the network.
        measured: describe the one that was measured, not the one that predicts and is exported.
    """
    named = run.used if measured else run.deployed
    name = network if named == run else f"{network} of {named.folder}"
    figures = run.used.read_result()["networks"].get(network)
    if figures is None:
        return f"{name}, not evaluated"
    before = "" if named == run.used else " before it learned from all labels"
    return f"{name}, {format_percent(figures['error'])} {run.evaluated_part} error{before}"


def print_result(run: "Run") -> None:
    """Print the result of a finished run and where its files are, and draw its curves."""
    from dualstudent.training.gain import read_gain
    from dualstudent.training.inspection import read_inspection
    from dualstudent.training.measured import read_measured

    result = run.read_result()
    comparison = read_measured(result)
    if result["error"] is not None:
        _print_figures(run)
        _draw_curves(run)
    elif comparison is None:
        print_line(console, "not evaluated: there is neither a test part nor a validation part")
    if comparison is not None:
        _print_comparison(comparison)
    if unreadable := result.get("unreadable_images"):
        images = format_count(unreadable, "image")
        print_line(console, f"{images} could not be read: see {run.log}")
    curves = f", curves in {run.curves}" if run.curves.is_file() else ""
    print_line(console, f"{format_duration(result['seconds'])}; files in {run.folder}{curves}")
    if run.page.is_file():
        print_line(console, f"report: {run.page}")
    if (inspection := read_inspection(result)) and any(inspection.counts.values()):
        print_line(console, f"to look at, on the page: {inspection.describe_counts()}")
    if gain := read_gain(result):
        for sentence in gain.describe(run.labels_only.folder, run.wants_refit):
            print_line(console, sentence)


def _describe_use(run: "Run") -> str:
    if run.deployed == run.used:
        return "predict, label and export use it"
    return (
        "predict and export use the same training on all labels, also those that measured this "
        f"one: {run.deployed.folder}"
    )


def _print_comparison(comparison: "MeasuredErrors") -> None:
    title = "cross-validation over the labels" if comparison.folds else "on the same features"
    table = Table(title=title, title_justify="left")
    table.add_column("method", no_wrap=True)
    for column in ("error", "95 % interval"):
        table.add_column(column, justify="right")
    for name, found in comparison.rows.items():
        table.add_row(name, format_percent(found.error), format_interval(found.interval))
    console.print(table)
    for sentence in comparison.describe():
        print_line(console, sentence)


def _print_figures(run: "Run") -> None:
    from dualstudent.training.model_file import read_model

    result, part = run.read_result(), run.evaluated_part
    console.print(build_result_table(result["networks"], f"{run.folder}, last epoch, {part} part"))
    used = describe_network(run, read_model(run.used)[1].exported, measured=True)
    print_line(console, f"result: {used}; {_describe_use(run)}")
    if len(result["headline"]) > 1:
        names, mean = " and ".join(result["headline"]), format_percent(result["error"])
        print_line(console, f"mean of {names}, as tables of methods report: {mean}")
    print_line(
        console,
        f"lowest {part} error over all epochs and networks (too optimistic): "
        f"{format_percent(result['chosen_on_test']['error'])}",
    )


def _draw_curves(run: "Run") -> None:
    from dualstudent.report.curves import draw_curves

    try:
        draw_curves({"": run.read_metrics()}, run.curves, str(run.folder))
    except OSError as error:  # a finished run may lie where nothing can be written
        warnings.warn(f"{run.curves} was not drawn: {error.strerror}", stacklevel=3)
