"""``dualstudent resume``: continue a run where it stopped."""

from dualstudent.cli.arguments import RunFolder
from dualstudent.cli.console import console, print_line


def resume(run: RunFolder) -> None:
    """Continue a run exactly where it stopped; if it has finished, show its result.

    With it, its training on the labels alone, if [bold]train --data[/bold] began one.
    """
    from dualstudent.cli.progress import show_progress
    from dualstudent.cli.results import print_result
    from dualstudent.runs import resume as continue_run
    from dualstudent.training.run import Run
    from dualstudent.worth import awaits_comparison, compare_on_features, compare_with_labels

    opened = Run.open(run)
    if opened.result.is_file() and not awaits_comparison(opened):
        print_line(console, f"{run} has finished already:")
    with show_progress(console) as progress:
        continued = continue_run(run, progress.make_callback(run.name))
        compare_with_labels(continued, progress.make_callback(f"{run.name}, labels alone"))
    with show_progress(console, "epochs") as progress:
        compare_on_features(continued, progress.make_callback(f"{run.name}, cross-validation"))
    print_result(continued)
