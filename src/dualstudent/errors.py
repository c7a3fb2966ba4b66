"""The one kind of error that is the user's to mend."""


class UserError(ValueError):
    """Something the user gave is wrong; the message says what, where, and what would be right.

    The command line prints the message as one line and exits with code 2; from Python it is
    an ordinary ``ValueError``.
    """
