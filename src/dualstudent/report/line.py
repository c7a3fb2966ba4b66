"""A line for people that may hold anything: names of files, classes, messages."""

from rich.console import Console

from dualstudent.errors import escape_line


def print_line(console: Console, text: object) -> None:
    """Print the text as it is, as one line, however long."""
    console.print(escape_line(text), markup=False, highlight=False, soft_wrap=True)
