import os
from collections.abc import Iterator

import pytest

from dualstudent.errors import UserError
from dualstudent.parallel import map_processes, map_threads


def doubled(number: int) -> int:
    return 2 * number


def process_id(_: int) -> int:
    return os.getpid()


def mistaken(number: int) -> int:
    raise UserError(f"{number} is wrong")


def dying(_: int) -> None:
    os._exit(9)


def test_results_come_in_order_from_other_processes() -> None:
    with map_processes(doubled, range(50), workers=2) as results:
        assert list(results) == list(range(0, 100, 2))
    with map_processes(process_id, range(4), workers=2) as results:
        assert os.getpid() not in set(results)


def test_one_worker_is_this_process() -> None:
    with map_processes(process_id, range(2), workers=1) as results:
        assert set(results) == {os.getpid()}


def test_no_more_is_begun_than_is_fetched() -> None:
    begun = []

    def pieces() -> Iterator[int]:
        for number in range(100):
            begun.append(number)
            yield number

    with map_threads(doubled, pieces(), workers=3) as results:
        for number in range(10):
            assert next(results) == 2 * number
            assert len(begun) == 6 + number
    assert len(begun) == 15


def test_a_mistake_in_a_worker_comes_back() -> None:
    with (
        pytest.raises(UserError, match="7 is wrong"),
        map_processes(mistaken, [7], workers=2) as results,
    ):
        next(results)


def test_a_worker_that_dies_is_noticed() -> None:
    with (
        pytest.raises(UserError, match="one of 2 worker processes died"),
        map_processes(dying, range(3), workers=2) as results,
    ):
        list(results)
