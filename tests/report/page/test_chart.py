import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualstudent.report.page.chart import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Axis,
    Chart,
    Point,
    Row,
    Series,
    thin,
)


@given(st.floats(1e-9, 1e9))
def test_an_axis_holds_its_values_and_has_a_few_round_ticks(highest: float) -> None:
    axis = Axis.covering("loss", [highest / 2, highest])
    ticks = axis.ticks()
    assert axis.low == ticks[0] == 0
    assert highest <= axis.high * (1 + 1e-6)
    assert axis.high <= 1.5 * highest
    assert 4 <= len(ticks) <= 11
    step = f"{ticks[1]:e}"
    assert step[0] in "125"
    assert set(step[1 : step.index("e")]) <= {".", "0"}


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [([-0.03, -0.01], -0.03, 0), ([-1, 3], -1, 3), ([0], 0, 0.2), ([], 0, 0.2)],
)
def test_an_axis_holds_0_and_negative_values(values: list[float], low: float, high: float) -> None:
    axis = Axis.covering("loss", values)
    assert (axis.low, axis.high) == pytest.approx((low, high))
    assert 0 in axis.ticks()


def test_epochs_are_whole() -> None:
    assert Axis("epoch", 1, 2, whole=True).ticks() == [1, 2]
    assert Axis("epoch", 1, 3, whole=True).ticks() == [1, 2, 3]
    assert Axis("epoch", 1, 300, whole=True).ticks() == [50, 100, 150, 200, 250, 300]


def test_a_value_lies_where_its_axes_say_and_a_line_breaks_where_there_is_none() -> None:
    points = [Point(0, 0, "a"), None, Point(5, 50, "b"), Point(10, 100, "c")]
    series = Series("s", points)
    rows = [Row(x, "") for x in (0, 2, 5, 10)]
    chart = Chart("k", "t", "c", Axis("x", 0, 10), Axis("y", 0, 100), rows, [series])
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    middle = f"{(LEFT + right) / 2} {(TOP + bottom) / 2}"
    assert chart.path(series) == f"M{LEFT} {bottom}M{middle}L{right} {TOP}"


@pytest.mark.parametrize("count", [1, 199, 200, 201, 600])
def test_thinned_rows_keep_the_first_the_last_and_the_order(count: int) -> None:
    kept = thin(range(count))
    assert len(kept) == min(count, 200)
    assert (kept[0], kept[-1]) == (0, count - 1)
    assert kept == sorted(set(kept))
