"""``dualstudent resume``: continue a run where it stopped."""

from dualstudent.cli.arguments import RunFolder
from dualstudent.cli.console import console, print_line


def resume(run: RunFolder) -> None:
    """Continue a run exactly where it stopped; if it has finished, show its result."""
    from dualstudent.cli.progress import show_progress
    from dualstudent.cli.results import print_result
    from dualstudent.runs import resume as continue_run
    from dualstudent.training.run import Run

    if Run.open(run).result.is_file():
        print_line(console, f"{run} has finished already:")
    with show_progress(console) as progress:
        continued = continue_run(run, progress.make_callback(run.name))
    print_result(continued)
