"""``dualstudent resume``: continue a run where it stopped."""

from dualstudent.cli.arguments import Imports, Loggers, RunFolder
from dualstudent.cli.console import console, print_line


def resume(run: RunFolder, imports: Imports = None, log: Loggers = None) -> None:
    """Continue a run exactly where it stopped; if it has finished, show its result.

    With it, its training on the labels alone, if [bold]train --data[/bold] began one.
    """
    from dualstudent.cli.results import compare_run, print_result
    from dualstudent.loggers import log_to
    from dualstudent.progress import show_progress
    from dualstudent.runs import resume as continue_run
    from dualstudent.training.run import Run
    from dualstudent.worth import awaits_comparison

    loggers = [log_to(name) for name in log or ()]
    opened = Run.open(run, imports or ())
    if opened.result.is_file() and not awaits_comparison(opened):
        print_line(console, f"{run} has finished already:")
    with show_progress(console) as progress:
        callbacks = [progress.make_callback(run.name), *loggers]
        continued = continue_run(run, callbacks, imports=imports or ())
    compare_run(continued)
    print_result(continued)
