"""The type of the fixture ``command``."""

from collections.abc import Callable

Command = Callable[..., tuple[object, str, str]]
"""Arguments of the program → exit code, output, messages."""
