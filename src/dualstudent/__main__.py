"""``python -m dualstudent`` is the command ``dualstudent``."""

import os
import signal
import sys
from types import FrameType


def main() -> None:
    """Run the command; Ctrl-C ends it without a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)
    try:
        from dualstudent import cli  # noqa: PLC0415

        cli.main()
    except KeyboardInterrupt:
        sys.exit(130)


def _stop(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; while packages load, end at once.

    Some packages turn an error in the middle of their import into another one, or print it.
    """
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        frame = frame.f_back
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
