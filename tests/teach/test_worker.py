"""The process that computes features and learns."""

import os
import pickle
import queue
import signal
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dualstudent.teach.learning import Answer, Question
from dualstudent.teach.worker import Failed, FeaturesDone, Report, Task, Worker
from tests.support.teaching import write_images

LIMIT = 300  # seconds; it takes a few, but the machine may be busy


def find_process(worker: Worker) -> int:
    found = worker._process.pid
    assert found is not None
    return found


@pytest.mark.slow
def test_features_come_then_answers_also_of_a_process_that_takes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = sorted(write_images(tmp_path / "digits", 60).iterdir())
    truth = [int(path.name[0]) for path in paths]
    paths[7].write_bytes(b"no image")
    numbers = tuple(range(100, 160))
    reports: queue.Queue[Report] = queue.Queue()
    receive, broken = Connection.recv, iter([True])

    def receive_badly(pipe: Connection) -> Any:
        if next(broken, False):
            raise pickle.UnpicklingError
        return receive(pipe)

    monkeypatch.setattr(Connection, "recv", receive_badly)
    worker = Worker(Task(numbers, tuple(paths)), reports.put)
    classes = tuple("0123456789")
    labels = {100 + place: truth[place] for place in range(40) if place != 7}
    worker.ask(Question(2, labels, classes, frozenset(), frozenset(numbers[40:])))
    found: list[Report] = []
    while not (found and isinstance(found[-1], Answer) and found[-1].version == 2):
        found.append(reports.get(timeout=LIMIT))
    done = [each for each in found if isinstance(each, FeaturesDone)][-1]
    assert (done.done, done.total, list(done.unreadable)) == (60, 60, [107])
    answer = found[-1]
    assert isinstance(answer, Answer)
    assert answer.labels == 39
    assert sorted(answer.numbers.tolist()) == [n for n in numbers if n != 107]
    assert set(answer.order) <= set(numbers[40:])
    assert np.isfinite(answer.confidence).all()
    os.kill(find_process(worker), signal.SIGKILL)
    while not isinstance(again := reports.get(timeout=LIMIT), Answer):
        assert isinstance(again, FeaturesDone)  # nothing has failed for good
    assert (again.version, again.labels) == (2, 39)  # it was asked the last question
    worker.close()


@pytest.mark.slow
def test_a_process_that_dies_each_time_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dualstudent.teach.worker._STARTS", 2)
    paths = sorted(write_images(tmp_path / "digits", 20).iterdir())
    reports: queue.Queue[Report] = queue.Queue()
    worker = Worker(Task(tuple(range(20)), tuple(paths)), reports.put)
    # No question, but what the process cannot use: it dies of it as of a fault of its own.
    worker.ask("no question")  # type: ignore[arg-type]
    while not isinstance(report := reports.get(timeout=LIMIT), Failed):
        assert isinstance(report, FeaturesDone)
    assert "2 times (exit code 1)" in report.reason
    worker.close()


def test_a_process_that_reads_nothing_keeps_nobody_waiting(tmp_path: Path) -> None:
    paths = sorted(write_images(tmp_path / "digits", 20).iterdir())
    reports: queue.Queue[Report] = queue.Queue()
    worker = Worker(Task(tuple(range(20)), tuple(paths)), reports.put)
    os.kill(find_process(worker), signal.SIGSTOP)
    many = frozenset(range(100_000))  # more than a pipe holds

    def ask() -> None:
        for version in range(5):
            worker.ask(Question(version, {}, ("a", "b"), frozenset(), many))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(LIMIT)
    assert not asking.is_alive()
    worker.close()
