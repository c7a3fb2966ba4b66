"""``dualstudent evaluate``: evaluate the networks of a finished run again."""

from dualstudent.cli.arguments import Imports, RunFolder
from dualstudent.cli.console import console
from dualstudent.cli.results import build_result_table


def evaluate(run: RunFolder, imports: Imports = None) -> None:
    """Evaluate the networks of a finished run on its test part, else on its validation part."""
    from dualstudent.training.model import evaluate_run
    from dualstudent.training.run import Run

    opened = Run.open(run, imports or ())
    figures = evaluate_run(opened)
    console.print(build_result_table(figures, f"{run}, {opened.evaluated_part} part"))
