"""How far a benchmark is: a line now and then."""

import time

from dualstudent import Callback

SECONDS_BETWEEN_LINES = 30


class PrintedProgress(Callback):
    """Prints what is done and the time it took, every half minute and at the end."""

    def __init__(self, label: str, unit: str = "epochs") -> None:
        self._label, self._unit = label, unit

    def on_start(self, step: int, total: int) -> None:
        self._total = total
        self._started = self._last = time.monotonic()

    def on_step(self, step: int) -> None:
        now = time.monotonic()
        if step == self._total or now - self._last >= SECONDS_BETWEEN_LINES:
            self._last = now
            minutes = (now - self._started) / 60
            done = f"{self._label}: {step}/{self._total} {self._unit}"
            print(f"{done}, {minutes:.1f} min", flush=True)
