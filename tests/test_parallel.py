import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from dualstudent.errors import UserError
from dualstudent.parallel import count_cores, map_threads


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
def test_a_process_that_may_use_one_core_counts_one() -> None:
    program = (
        "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]);"
        "from dualstudent.parallel import count_cores; print(count_cores())"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert answer.stdout == "1\n"


def test_processes_of_a_run_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("joblib.cpu_count", lambda: 64)
    assert count_cores() == 64
    for name, value in (("RANK", "9"), ("WORLD_SIZE", "200"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(name, value)
    for number, cores in ((2, 32), (8, 8), (100, 1)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(number))
        assert count_cores() == cores


def double(number: int) -> int:
    return 2 * number


def test_results_come_in_order_from_other_threads() -> None:
    with map_threads(double, range(50), workers=2) as results:
        assert list(results) == list(range(0, 100, 2))
    with map_threads(lambda _: threading.current_thread(), range(4), workers=2) as threads:
        assert threading.current_thread() not in set(threads)


def test_work_does_not_run_ahead_of_its_consumer() -> None:
    begun = []

    def pieces() -> Iterator[int]:
        for number in range(100):
            begun.append(number)
            yield number

    with map_threads(double, pieces(), workers=3) as results:
        for number in range(10):
            assert next(results) == 2 * number
            assert len(begun) == 6 + number
    assert len(begun) == 15


def test_an_error_in_a_thread_is_raised() -> None:
    def fail(number: int) -> None:
        raise UserError(f"{number} is wrong")

    with (
        pytest.raises(UserError, match="7 is wrong"),
        map_threads(fail, [7], workers=2) as results,
    ):
        next(results)
