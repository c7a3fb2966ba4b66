"""Writes where the time of training steps goes."""

from pathlib import Path
from typing import Any

from torch.profiler import profile, schedule

from dualstudent.training.callbacks import Callback

_FIRST, _WARM_UP, _STEPS = 5, 2, 10  # the first steps are slower than the others
_DEAREST = 10


class Profiler(Callback):
    """Profiles ten steps soon after the start, with torch's profiler.

    Args:
        folder: gets ``trace.json``, for https://ui.perfetto.dev or ``chrome://tracing``, and
            ``operations.txt``, a table of the ten dearest operations by their own time.

    Example:
        >>> from dualstudent import load_recipe, train
        >>> recipe = load_recipe("demo")
        >>> run = train(recipe, "runs/demo", Profiler(Path("profile")))  # doctest: +SKIP
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._profile: Any = None  # torch's type is private

    def on_start(self, step: int, total: int) -> None:
        first = min(_FIRST, max(0, total - step - _WARM_UP - _STEPS))
        self._profile = profile(
            schedule=schedule(wait=first, warmup=_WARM_UP, active=_STEPS, repeat=1),
            on_trace_ready=self._write,
        )
        self._profile.start()
        self._left = first + _WARM_UP + _STEPS

    def on_step(self, step: int) -> None:
        if self._left:
            self._left -= 1
            self._profile.step()
            if not self._left:
                self._profile.stop()

    def _write(self, measured: Any) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        measured.export_chrome_trace(str(self._folder / "trace.json"))
        averages = measured.key_averages()
        for each in [each for each in averages if each.key.startswith("ProfilerStep")]:
            averages.remove(each)  # a step is no operation
        on_gpu = any(each.self_device_time_total for each in averages)
        order = "self_device_time_total" if on_gpu else "self_cpu_time_total"
        table = averages.table(sort_by=order, row_limit=_DEAREST)
        (self._folder / "operations.txt").write_text(table + "\n", "utf-8")
