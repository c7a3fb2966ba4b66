"""A training in a child process that may fail, be killed or be stopped at a chosen moment.

Children are forked from a process that has loaded everything but trained nothing, so that one takes
a fraction of a second.
"""

import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dualstudent import Callback, Recipe, Run, UserError, load_recipe, runs
from dualstudent.runs import train_or_resume
from dualstudent.signals import Interrupted
from dualstudent.training import recorder
from dualstudent.training.checkpoint import read_tensors

EPOCHS, STEPS = 3, 4  # steps of an epoch
_TINY = (
    *("data.source=digits-8x8", "data.image_size=8", "data.images=100", "data.labels=20"),
    *("batch.size=26", "batch.labeled=6", f"schedule.epochs={EPOCHS}", "schedule.rampup_epochs=1"),
    *("transforms.weak.translate=1", "evaluation.every=2"),
)
_OF_METHOD = {
    "vat": "method.epsilon=1",
    "imbalanced-student": 'method.strong_network={name="digits-cnn", width=2}',
    "mean-teacher+fastswa": "method.average_from=1",
    "pi+fastswa": "method.average_from=1",
} | dict.fromkeys(
    ("adamatch", "fixmatch", "flexmatch", "freematch", "softmatch"), "transforms.strong.noise=0.3"
)
# What a run in a folder writes, by the events of Python; the open of a reader is none of them.
_WRITES = {"os.rename", "os.truncate", "os.remove", "os.mkdir", "os.chmod"}


def tiny_recipe(method: str = "dual-student", *changes: str) -> Recipe:
    """Three epochs of four steps on 100 of the 8 × 8 digits."""
    with warnings.catch_warnings(action="ignore"):
        return load_recipe("digits", [*_TINY, *name_method(method), *changes])


def name_method(method: str) -> tuple[str, ...]:
    """What to set for a method."""
    more = _OF_METHOD.get(method)
    return (f"method.name={method}", more) if more else (f"method.name={method}",)


@dataclass(frozen=True)
class End:
    """How a child ended.

    Attributes:
        kind: "finished", "refused" (an error for users), "stopped", "killed" or "crashed".
        text: its error, or the traceback of a crash.
        warnings: what it warned of.
    """

    kind: str
    text: str = ""
    warnings: tuple[str, ...] = ()


def run_child(
    work: Callable[[], object], seconds: float | None = None, number: int = signal.SIGKILL
) -> End:
    """Run ``work`` in a child; after ``seconds``, if given, it gets a signal."""
    with tempfile.TemporaryFile("w+") as report:
        child = os.fork()
        if child == 0:
            _work_and_exit(work, report)
        if seconds is not None:
            time.sleep(seconds)
            os.kill(child, number)
        _, status = os.waitpid(child, 0)
        report.seek(0)
        content = report.read()
    if os.WIFSIGNALED(status):
        return End("killed", signal.Signals(os.WTERMSIG(status)).name)
    return End(**json.loads(content))


def _work_and_exit(work: Callable[[], object], report: Any) -> None:
    kind, text = "finished", ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            work()
        except (UserError, OSError) as error:
            kind, text = "refused", str(error)
        except Interrupted as error:
            kind, text = "stopped", str(error)
        except BaseException:
            kind, text = "crashed", traceback.format_exc()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    messages = [str(warning.message) for warning in caught]
    json.dump({"kind": kind, "text": text, "warnings": messages}, report)
    report.flush()
    os._exit(0)  # nothing of the parent is cleaned up twice


def train_tiny(
    recipe: Recipe,
    folder: Path,
    callback: Callback | None = None,
    often: bool = False,
    with_page: bool = False,
) -> None:
    """Train or resume in this process, which must be a child.

    Args:
        recipe: of the run.
        folder: of the run.
        callback: receives the progress.
        often: whether to write a checkpoint in every step.
        with_page: whether to draw the page at the end, which takes longer than the training.
    """
    if often:
        recorder._SECONDS_BETWEEN_CHECKPOINTS = 0.0
    if not with_page:
        runs.draw_page = lambda *_: None
    train_or_resume(recipe, folder, callback or Callback())


class Acts(Callback):
    """Acts at a step, or at the end of an epoch, before its checkpoint."""

    def __init__(
        self, act: Callable[[], object], step: int | None = None, epoch: int | None = None
    ) -> None:
        self._act, self._step, self._epoch = act, step, epoch

    def on_step(self, step: int) -> None:
        if step == self._step:
            self._act()

    def on_epoch(self, record: dict[str, Any]) -> None:
        if record["epoch"] == self._epoch:
            self._act()


def kill_self() -> None:
    """Die as by a power cut."""
    os.kill(os.getpid(), signal.SIGKILL)


def on_write(folder: Path, place: int, act: Callable[[str], object]) -> None:
    """Act before the write number ``place``, from 0, to files in ``folder`` or of its name."""
    beginning, seen = str(folder), 0

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        writes = event in _WRITES or (event == "open" and _opens_to_write(*arguments[1:]))
        if not writes or not str(arguments[0]).startswith(beginning):
            return
        seen += 1
        if seen == place + 1:
            act(str(arguments[0]))

    sys.addaudithook(watch)


def _opens_to_write(mode: str | None, flags: int) -> bool:
    return bool(flags & (os.O_WRONLY | os.O_RDWR))


def limit_files(most_bytes: int, deadly: bool) -> None:
    """Let no file become larger; the write that would make it so fails, or kills in its middle."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL if deadly else signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY))


def find_difference(run: Run, expected: Run) -> str | None:
    """Compare two finished runs bit for bit: weights, optimizer state, metrics and figures."""
    for name in ("checkpoint.safetensors", "model.safetensors"):
        found, wanted = (read_tensors(each.folder / name)[0] for each in (run, expected))
        if found.keys() != wanted.keys():
            return f"{name} has other tensors"
        for key, tensor in found.items():
            same = tensor.dtype == wanted[key].dtype and tensor.equal(wanted[key])
            if not same:
                return f"{key} of {name}"
    if run.metrics.read_bytes() != expected.metrics.read_bytes():
        return "the metrics"
    return None if run.read_result()["networks"] == expected.read_result()["networks"] else "result"
