"""What a finished run achieved, in the same words everywhere.

A run is evaluated on the test part, else on a validation part held out of the labels, else not.
"""

from typing import Any

from rich.console import Console

from dualstudent.report.curves import draw_curves
from dualstudent.report.line import print_line
from dualstudent.report.tables import format_count, format_duration, percent, result_table
from dualstudent.training.run import Run


def describe_network(run: Run, network: str) -> str:
    """A network of a finished run and its error, such as "student1, 8.85 % test error"."""
    figures = run.read_result()["networks"].get(network)
    if figures is None:
        return f"{network}, not evaluated"
    return f"{network}, {percent(figures['error'])} {run.evaluated_part} error"


def show_outcome(run: Run, console: Console) -> None:
    """Print what a finished run achieved and where its files are, and draw its curves."""
    result = run.read_result()
    if result["error"] is None:
        print_line(console, "not evaluated: there is neither a test part nor a validation part")
    else:
        _show_figures(run, result, console)
        draw_curves({"": run.read_metrics()}, run.curves, str(run.folder))
    if unreadable := result.get("unreadable_images"):
        images = format_count(unreadable, "image")
        print_line(console, f"{images} could not be read and took no part: see {run.log}")
    curves = f", curves in {run.curves}" if run.curves.is_file() else ""
    print_line(console, f"{format_duration(result['seconds'])}; files in {run.folder}{curves}")
    if run.page.is_file():
        print_line(console, f"to look at it: {run.page}")


def _show_figures(run: Run, result: dict[str, Any], console: Console) -> None:
    part, headline = run.evaluated_part, " and ".join(result["headline"])
    console.print(result_table(result["networks"], f"{run.folder}, last epoch, {part} part"))
    console.print(f"result, {headline}: {percent(result['error'])} {part} error")
    console.print(
        f"best epoch and network chosen on the {part} part (not honest): "
        f"{percent(result['chosen_on_test']['error'])}"
    )
