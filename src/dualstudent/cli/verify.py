"""``dualstudent verify``: check that a run is whole."""

from typing import Annotated

import typer

from dualstudent.cli.arguments import Imports, RunFolder
from dualstudent.cli.console import console, print_line


def verify(
    run: RunFolder,
    data: Annotated[bool, typer.Option(help="Also read the data that its recipe names.")] = True,
    imports: Imports = None,
) -> None:
    """Check the files of a run by their digests, and its recipe, data and versions.

    Nothing of the run is changed or executed, so it may be a stranger's. Ends with code 2 if
    something is wrong.
    """
    from dualstudent.errors import UserError
    from dualstudent.training.run import Run
    from dualstudent.training.verification import verify_run

    opened = Run.open(run, imports or ())
    within = (opened.labels_only, opened.refit)
    runs = [opened, *(each for each in within if each.about.is_file())]
    wrong = 0
    for each in runs:
        for check in verify_run(each, data):
            wrong += check.outcome == "error"
            where = "" if each == opened else f"{each.folder.name}/"
            print_line(console, f"{check.outcome:7}  {where}{check.what}: {check.message}")
    if wrong:
        raise UserError(f"{run}: {wrong} of the checks above failed; bring these files back")
