"""How the commands speak: results on the output, everything else as one line each beside it."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Console

from dualstudent.errors import UserError
from dualstudent.report.line import print_line
from dualstudent.signals import Interrupted

if TYPE_CHECKING:
    from dualstudent.data.images.check import Finding

console = Console()
messages = Console(stderr=True)


def run_command(command: Callable[[], object]) -> None:
    """Run a command; mistakes, full disks and stops are one line and an exit code."""
    try:
        command()
    except UserError as error:
        say("error", "red", str(error))
        sys.exit(2)
    except OSError as error:
        say("error", "red", f"{error.filename}: {error.strerror}" if error.filename else str(error))
        sys.exit(2)
    except Interrupted as stop:
        say("stopped", "yellow", str(stop))
        sys.exit(128 + stop.number)


def say(what: str, color: str, message: str) -> None:
    messages.print(f"[bold {color}]{what}:[/bold {color}]", end=" ")
    print_line(messages, message)


def tell(finding: "Finding") -> None:
    from dualstudent.report.data_check import finding_line

    color = "red" if finding.severity == "error" else "yellow"
    say(finding.severity, color, finding_line(finding))
