"""How commands print: results to stdout, messages to stderr, one line each."""

import signal
import sys
from collections.abc import Callable

from rich.console import Console

from dualstudent.errors import UnheardError, UserError, WorldError, escape_line
from dualstudent.processes import find_world
from dualstudent.signals import Interrupted

console = Console(emoji=False)  # a name may hold :x:
messages = Console(stderr=True, emoji=False)


def print_line(where: Console, text: object) -> None:
    """Print text on one line, without markup: it may contain names of files or classes."""
    where.print(escape_line(text), markup=False, highlight=False, soft_wrap=True)


def print_message(kind: str, color: str, text: object) -> None:
    """Print one line to stderr that begins with its kind, such as "warning"."""
    messages.print(f"[bold {color}]{kind}:[/bold {color}]", end=" ")
    print_line(messages, text)


def run_command(command: Callable[[], object]) -> None:
    """Run a command; user errors, file errors and stops become one line and an exit code.

    Of several processes that share a run, only the leader prints.
    """
    try:
        world = find_world()
        console.quiet = messages.quiet = world is not None and not world.leads
        command()
    except UserError as error:
        _print_error(error)
        sys.exit(2)
    except OSError as error:
        text = f"{error.filename}: {error.strerror}" if error.filename else error
        _print_error(UserError(text))
        sys.exit(2)
    except Interrupted as stop:
        print_message("stopped", "yellow", stop)
        sys.exit(128 + stop.number)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # the reader, such as head, has enough
            sys.exit(128 + signal.SIGPIPE)
        raise


def _print_error(error: UserError) -> None:
    world = None if isinstance(error, WorldError) else find_world()
    if world is not None:
        from dualstudent.training.distributed import settle

        error = settle(error)
        if isinstance(error, UnheardError) and (world.rank == 1 or world.local_rank == 0):
            messages.quiet = False
    print_message("error", "red", error)
