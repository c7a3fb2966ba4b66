"""``dualstudent resume``: continue a run where it stopped."""

from dualstudent.cli.arguments import Imports, RunFolder
from dualstudent.cli.console import console, print_line


def resume(run: RunFolder, imports: Imports = None) -> None:
    """Continue a run exactly where it stopped; if it has finished, show its result.

    With it, its training on the labels alone, if [bold]train --data[/bold] began one.
    """
    from dualstudent.cli.progress import show_progress
    from dualstudent.cli.results import compare_run, print_result
    from dualstudent.runs import resume as continue_run
    from dualstudent.training.run import Run
    from dualstudent.worth import awaits_comparison

    opened = Run.open(run, imports or ())
    if opened.result.is_file() and not awaits_comparison(opened):
        print_line(console, f"{run} has finished already:")
    with show_progress(console) as progress:
        continued = continue_run(run, progress.make_callback(run.name), imports=imports or ())
    compare_run(continued)
    print_result(continued)
