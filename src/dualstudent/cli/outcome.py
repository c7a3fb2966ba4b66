"""What a finished run achieved, in the same words for all commands.

A run is evaluated on its test part, else on its validation part, else not at all.
"""

from typing import TYPE_CHECKING

from dualstudent.cli.console import console, print_line
from dualstudent.cli.tables import result_table
from dualstudent.report.format import format_count, format_duration, format_percent

if TYPE_CHECKING:
    from dualstudent.training.run import Run


def describe_network(run: "Run", network: str) -> str:
    """A network of a finished run and its error, such as "student1, 8.85 % test error"."""
    figures = run.read_result()["networks"].get(network)
    if figures is None:
        return f"{network}, not evaluated"
    return f"{network}, {format_percent(figures['error'])} {run.evaluated_part} error"


def print_outcome(run: "Run") -> None:
    """Print the result of a finished run and where its files are, and draw its curves."""
    result = run.read_result()
    if result["error"] is None:
        print_line(console, "not evaluated: there is neither a test part nor a validation part")
    else:
        _print_figures(run)
        _draw_curves(run)
    if unreadable := result.get("unreadable_images"):
        images = format_count(unreadable, "image")
        print_line(console, f"{images} could not be read: see {run.log}")
    curves = f", curves in {run.curves}" if run.curves.is_file() else ""
    print_line(console, f"{format_duration(result['seconds'])}; files in {run.folder}{curves}")
    if run.page.is_file():
        print_line(console, f"report: {run.page}")


def _print_figures(run: "Run") -> None:
    result, part = run.read_result(), run.evaluated_part
    console.print(result_table(result["networks"], f"{run.folder}, last epoch, {part} part"))
    headline = " and ".join(result["headline"])
    console.print(f"result, {headline}: {format_percent(result['error'])} {part} error")
    console.print(
        f"best epoch and network chosen on the {part} part (not honest): "
        f"{format_percent(result['chosen_on_test']['error'])}"
    )


def _draw_curves(run: "Run") -> None:
    from dualstudent.report.curves import draw_curves

    draw_curves({"": run.read_metrics()}, run.curves, str(run.folder))
