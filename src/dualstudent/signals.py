"""Clean stops on Ctrl-C, on SIGTERM, when the terminal is closed, and before SLURM ends a job."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupted(Exception):
    """The work was stopped by a signal; everything needed to continue has been saved.

    Attributes:
        number: the signal.
        done: how much was done, such as "step 120".
        command: the command that continues.
    """

    def __init__(self, number: int, done: str, command: str) -> None:
        self.number, self.done, self.command = number, done, command
        name = signal.Signals(number).name
        super().__init__(f"{name} after {done}; continue with: {command}")


STOPS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1})


class StopRequest:
    """While entered, records a stop signal instead of stopping; a second Ctrl-C stops at once.

    Further signals of the others are ignored, because a closing terminal may send SIGHUP twice.
    SIGHUP stays ignored where it already is, as under nohup.

    Attributes:
        received: the first signal, or None.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            for number in STOPS:
                if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._note_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._previous:
            return
        # What comes meanwhile is delivered afterwards, to the handlers that were there before.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
        try:
            for number, handler in list(self._previous.items()):  # one may have come before
                signal.signal(number, handler)
            self._previous.clear()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _note_signal(self, number: int, frame: FrameType | None) -> None:
        self.received = self.received or number
        if signal.SIGINT in self._previous:
            signal.signal(signal.SIGINT, self._previous.pop(signal.SIGINT))
