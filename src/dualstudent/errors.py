"""The one kind of error that is the user's to mend."""


class UserError(ValueError):
    """Something the user gave is wrong; the message says what, where, and what would be right.

    The command line prints the message as one line and exits with code 2; from Python it is
    an ordinary ``ValueError``.
    """


def on_one_line(text: object) -> str:
    r"""The text with everything escaped that would break the line or the terminal.

    Names of files may hold line feeds, control characters, or bytes that are no text.

    Example:
        >>> print(on_one_line("my\ncat.jpg"))
        my\ncat.jpg
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))
