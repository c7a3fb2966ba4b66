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
    """While entered, the first of ``STOPS`` takes a note, and only a second Ctrl-C acts as usual.

    A closing terminal may send SIGHUP twice, so that others after the first mean nothing new.
    Where SIGHUP is ignored, as under nohup, it stays so.

    Attributes:
        received: the number of the signal, or None.
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
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    def _note_signal(self, number: int, frame: FrameType | None) -> None:
        self.received = self.received or number
        if signal.SIGINT in self._previous:
            signal.signal(signal.SIGINT, self._previous.pop(signal.SIGINT))
