"""A process of its own that computes features and learns, so that the page never waits.

The process that serves the page sends questions; a newer one supersedes those before it. What was
found comes back as it is done.
"""

import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch

from dualstudent.errors import UserError, escape_line
from dualstudent.parallel import call_when_parent_ends, main_module_left_out
from dualstudent.teach.features import choose_extractor, compute_features
from dualstudent.teach.learning import Answer, Learner, Question, Superseded
from dualstudent.trunks.propagation import Vectors
from dualstudent.trunks.trunk import TrunkSettings

EVERY = 5  # labels, after which the model is trained again
MOST = 20_000  # images that take part; among these there is enough to choose from
_PATIENCE = 3  # trainings in a row that may be superseded, however fast somebody labels
_STARTS = 4  # of the process, before it is said that it dies each time
_FIRST = 200  # images, from which on the first graph is worth its time


@dataclass(frozen=True)
class Task:
    """The images.

    Attributes:
        numbers: of the images that take part, in random order.
        paths: their files.
        trunk: of a run with the same images.
    """

    numbers: tuple[int, ...]
    paths: tuple[Path, ...]
    trunk: TrunkSettings | None = None


@dataclass(frozen=True)
class FeaturesDone:
    """How far the features are.

    Attributes:
        name: which features these are.
        done: number of images that have them.
        total: number of images that take part.
        unreadable: number of an image → why it cannot be read.
    """

    name: str
    done: int
    total: int
    unreadable: dict[int, str]


@dataclass(frozen=True)
class Failed:
    """The process cannot go on, for a reason that the user can change."""

    reason: str


Report = FeaturesDone | Answer | Failed


class Worker:
    """The process, seen from the one that serves the page; if it dies, it is started again.

    Args:
        task: the images.
        report: is called with everything that is found, from a thread.
    """

    def __init__(self, task: Task, report: Callable[[Report], None]) -> None:
        self._task, self._report, self._ended = task, report, False
        self._asked: Question | None = None  # last
        self._is_new = False  # and has not been sent
        self._changed = threading.Condition()
        self._start()
        for loop in (self._send, self._listen):
            threading.Thread(target=loop, daemon=True).start()

    def ask(self, question: Question) -> None:
        """Ask for an answer; questions before it are superseded. Never waits for the process."""
        with self._changed:
            self._asked, self._is_new = question, True
            self._changed.notify()

    def close(self) -> None:
        """End the process."""
        with self._changed:
            self._ended = True
            self._process.kill()  # features are kept piece by piece, so nothing is lost
        self._process.join()

    def _start(self) -> None:
        """Start the process, unless all has ended; it is asked what was asked last."""
        context = multiprocessing.get_context("spawn")  # fork breaks torch's threads
        with self._changed:
            if self._ended:
                return
            self._pipe, theirs = context.Pipe()
            with main_module_left_out():
                process = context.Process(target=_work, args=(theirs, self._task), daemon=True)
                process.start()
            theirs.close()
            self._process, self._is_new = process, self._asked is not None
            self._changed.notify()

    def _send(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_new)
                pipe, self._is_new = self._pipe, False
                question = self._asked
            with suppress(OSError):  # it has died; the next one is asked again
                pipe.send(question)  # may wait while it learns

    def _listen(self) -> None:
        for start in range(_STARTS):
            if start:
                self._start()
            while (report := self._receive()) is not None:
                self._report(report)
            self._process.join()
            code = self._process.exitcode
            if code == 0 or self._ended:  # with 0, it has said why
                return
        died = f"the process that learns died {_STARTS} times (exit code {code})"
        self._report(Failed(f"{died}; restart teach"))

    def _receive(self) -> Report | None:
        """Wait for the next report; None at the end of the process."""
        try:
            report: Report = self._pipe.recv()
            return report
        except (EOFError, OSError):
            return None
        except Exception:  # it cannot be read, and nobody knows what was lost: begin anew
            self._process.kill()
            return None


def _work(pipe: Connection, task: Task) -> None:
    """Run the process: a thread computes features, this one learns."""
    call_when_parent_ends(lambda: os._exit(1))
    torch.set_num_threads(1)
    os.nice(5)  # the page comes first
    turn = threading.Lock()

    def send(report: Report) -> None:
        with turn:  # two threads send
            pipe.send(report)

    try:
        extractor, size, channels = choose_extractor(task.paths, task.trunk)
        bench = _Bench(Learner(extractor.uses_line))

        def compute() -> None:
            unreadable: dict[int, str] = {}
            try:
                for places, features, broken in compute_features(
                    task.paths, extractor, size, channels
                ):
                    bench.add([task.numbers[place] for place in places], features)
                    unreadable |= {task.numbers[place]: why for place, why in broken.items()}
                    done = bench.images + len(unreadable)
                    send(FeaturesDone(extractor.name, done, len(task.paths), unreadable))
            except Exception as error:  # whatever it is, nobody else would tell the user
                send(Failed(escape_line(error)))
            bench.finish()

        threading.Thread(target=compute, daemon=True).start()
        _answer(pipe, send, bench)
    except (UserError, OSError) as error:
        send(Failed(escape_line(error)))


def _answer(pipe: Connection, send: Callable[[Report], None], bench: "_Bench") -> None:
    question: Question | None = None
    answered, given_up = False, 0

    def check() -> None:
        if given_up < _PATIENCE and pipe.poll():
            raise Superseded

    while True:
        while pipe.poll(None if answered and not bench.is_growing else 0.2):
            question, answered = pipe.recv(), False
        if bench.refresh():
            answered = False
        if question is None or answered or bench.learner.images < 2:
            continue
        given_up += 1
        with suppress(Superseded):
            send(bench.learner.learn(question, check))
            answered, given_up = True, 0


class _Bench:
    """Features as they come in, and the learner that uses them from time to time."""

    def __init__(self, learner: Learner) -> None:
        self.learner, self._lock = learner, threading.Lock()
        self._numbers, self._pieces = list[int](), list[Vectors]()
        self._finished = False

    @property
    def images(self) -> int:
        return len(self._numbers)

    @property
    def is_growing(self) -> bool:
        """Whether there are, or will be, features that are not used yet."""
        return not self._finished or self.learner.images < self.images

    def add(self, numbers: Sequence[int], features: Vectors) -> None:
        with self._lock:
            self._numbers += numbers
            if numbers:
                self._pieces.append(features)

    def finish(self) -> None:
        self._finished = True

    def refresh(self) -> bool:
        """Use new features if there are twice as many as before, or all; else return False."""
        with self._lock:
            used, there = self.learner.images, self.images
            enough = there >= max(_FIRST, 2 * used) or (self._finished and there > used)
            if not enough or there < 2:
                return False
            numbers, features = np.array(self._numbers), np.concatenate(self._pieces)
        self.learner.use(numbers, features)
        return True
