"""The one kind of error that is the user's to mend."""

from collections.abc import Iterable

_SHOWN = 10


class UserError(ValueError):
    """Something the user gave is wrong; the message says what, where, and what would be right.

    The command line prints the message as one line and exits with code 2; from Python it is
    an ordinary ``ValueError``.
    """


def raise_problems(problems: Iterable[str], where: str = "") -> None:
    """Raise if there is a problem; the message names the first ten, to be mended in one go.

    Args:
        problems: one each, that say what would be right.
        where: all of them are.

    Example:
        >>> raise_problems([])
        >>> raise_problems(["line 2 has no path", "line 7 has no path"], "my.csv")
        Traceback (most recent call last):
        dualstudent.errors.UserError: my.csv: line 2 has no path; line 7 has no path
    """
    found = list(problems)
    if found:
        more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
        raise UserError((f"{where}: " if where else "") + "; ".join([*found[:_SHOWN], *more]))


def escape_line(text: object) -> str:
    r"""The text with everything escaped that would break the line or the terminal.

    Names of files may hold line feeds, control characters, or bytes that are no text.

    Example:
        >>> print(escape_line("my\ncat.jpg"))
        my\ncat.jpg
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))
