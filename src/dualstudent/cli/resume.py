"""``dualstudent resume``: continue a run where it stopped."""

from typing import Annotated

import typer

from dualstudent.cli.arguments import Imports, Loggers, RunFolder
from dualstudent.cli.console import console, print_line
from dualstudent.processes import find_world


def resume(
    run: RunFolder,
    imports: Imports = None,
    log: Loggers = None,
    processes: Annotated[
        int | None,
        typer.Option(
            min=1, max=256, help="Processes of this machine that share it; default: as before."
        ),
    ] = None,
) -> None:
    """Continue a run exactly where it stopped; if it has finished, show its result.

    With it, its trainings on the labels alone and on all labels, if [bold]train --data[/bold] wants
    them.
    """
    from dualstudent.cli.results import complete_run, print_result
    from dualstudent.loggers import log_to
    from dualstudent.progress import show_progress
    from dualstudent.runs import resume as continue_run
    from dualstudent.training.run import Run
    from dualstudent.worth import is_unfinished

    world = find_world()
    leads = world is None or world.leads
    loggers = [log_to(name) for name in log or () if leads]
    opened = Run.open(run, imports or ())
    if opened.result.is_file() and not is_unfinished(opened):
        print_line(console, f"{run} has finished already:")
    with show_progress(console) as progress:
        callbacks = [progress.make_callback(run.name), *loggers]
        continued = continue_run(run, callbacks, imports=imports or (), processes=processes)
    if not leads:
        return
    complete_run(continued)
    print_result(continued)
