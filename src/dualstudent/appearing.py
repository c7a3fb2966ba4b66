"""A text file that appears when it is complete, and never in place of another."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from dualstudent.data.files import is_there
from dualstudent.errors import UserError


@contextmanager
def appearing(output: Path) -> Iterator[TextIO]:
    """A new text file that takes its name when the block ends well, and vanishes otherwise.

    Args:
        output: must not exist; its folder must.
    """
    if is_there(output):
        raise UserError(f"{output} already exists; choose another -o")
    if not output.parent.is_dir():
        raise UserError(f"{output}: there is no folder {output.parent}; make it first")
    partial = output.with_name(output.name + ".partial")
    # Names of files may be bytes that are no text; they are written as they are.
    with partial.open("x", encoding="utf-8", errors="surrogateescape", newline="") as file:
        try:
            yield file
        except BaseException:
            partial.unlink()
            raise
    partial.rename(output)
