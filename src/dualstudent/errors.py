"""Errors that the user can fix, and warnings."""

from collections.abc import Iterable

_SHOWN = 10


class UserError(ValueError):
    """The input is wrong. The message says what, where, and what would be right, in one line.

    The command line prints the message and exits with code 2.
    """


class WorldError(UserError):
    """The environment variables that say which of several processes this is make no sense."""


class UnheardError(UserError):
    """An error of a process that its leader does not hear of, and so cannot tell the user."""


class DataWarning(UserWarning):
    """Data are usable but not what was expected."""


class NotKeptWarning(UserWarning):
    """Settings of a recipe, or defaults of a method, are not kept with another method."""


class RunsFailed(UserError):
    """Some runs of a grid failed; all others are finished."""


def raise_problems(
    problems: Iterable[str], where: str = "", kind: type[UserError] = UserError
) -> None:
    """Raise one error for all problems, naming the first ten; do nothing if there are none.

    Args:
        problems: a sentence each.
        where: the file or setting that all of them are about.
        kind: class of the error.

    Raises:
        UserError: if there is a problem.

    Example:
        >>> raise_problems([])
        >>> raise_problems(["line 2 has no path", "line 7 has no path"], "my.csv")
        Traceback (most recent call last):
        dualstudent.errors.UserError: my.csv: line 2 has no path; line 7 has no path
    """
    found = list(problems)
    if found:
        more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
        raise kind((f"{where}: " if where else "") + "; ".join([*found[:_SHOWN], *more]))


def escape_line(text: object) -> str:
    r"""Escape everything that is not printable, so that the text stays on one line.

    File names may hold line feeds, control characters, or bytes that are not valid text.

    Example:
        >>> print(escape_line("my\ncat.jpg"))
        my\ncat.jpg
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))
