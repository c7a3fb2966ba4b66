"""A clean stop on Ctrl-C, on SIGTERM, and when the terminal is closed."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupted(Exception):
    """A run was asked to stop and has left a checkpoint from which it continues exactly.

    Attributes:
        number: of the signal.
        done: what was done by then.
        command: that continues.
    """

    def __init__(self, number: int, done: str, command: str) -> None:
        self.number, self.done, self.command = number, done, command
        name = signal.Signals(number).name
        super().__init__(f"{name} after {done}; continue with: {command}")


STOPS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})


class StopRequest:
    """While entered, the first of ``STOPS`` only takes a note; a second one acts as usual.

    A signal that is ignored, as SIGHUP is under nohup, stays so; SIGINT always counts.

    Attributes:
        received: the number of the signal, or None.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            for number in STOPS:
                if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._take_note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._restore()

    def _take_note(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()
