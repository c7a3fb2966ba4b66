"""Charts as data, from which the templates make an SVG drawing and a table.

The script of the page reads the values under the cursor from the table, so that drawing, cursor
and table always show the same.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

T = TypeVar("T")
Shape = Literal["circle", "diamond"]

WIDTH, HEIGHT = 400.0, 246.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 14.0, 22.0, 40.0
COLORS = 8
_MAX_DOTS = 30  # rows; more dots would hide the line


@dataclass(frozen=True)
class Axis:
    """An axis of a chart.

    Attributes:
        label: quantity and unit.
        low: lower end.
        high: upper end, above ``low``.
        whole: whether ticks are whole numbers.
    """

    label: str
    low: float
    high: float
    whole: bool = False

    @classmethod
    def covering(cls, label: str, values: Iterable[float], whole: bool = False) -> "Axis":
        """An axis between round numbers that has 0 and all ``values`` on it."""
        known = (0.0, *values)
        step = _round_step((max(known) - min(known)) or 1.0)
        low, high = math.floor(min(known) / step + 1e-9), math.ceil(max(known) / step - 1e-9)
        return cls(label, step * low, step * max(high, low + 1), whole)

    def ticks(self) -> list[float]:
        """About five round numbers.

        Example:
            >>> Axis("error in %", 0, 40).ticks()
            [0.0, 10.0, 20.0, 30.0, 40.0]
        """
        step = _round_step(self.high - self.low)
        if self.whole:
            step = max(step, 1.0)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [round(number * step, 10) for number in range(first, last + 1)]

    def share(self, value: float) -> float:
        """Position of a value on the axis, from 0 to 1."""
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Point:
    """A value on both axes, and its text."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class Row:
    """A row of the table: a position of the cursor on the x axis, and its text."""

    x: float
    text: str


@dataclass(frozen=True)
class Series:
    """A line.

    Attributes:
        name: of the line.
        points: one per row, None for a gap.
        color: number from 0.
        dash: 0 for a solid line.
    """

    name: str
    points: Sequence[Point | None]
    color: int = 0
    dash: int = 0

    @property
    def style(self) -> str:
        """CSS classes."""
        return f"{_color_class(self.color)} d{self.dash % 4}"


@dataclass(frozen=True)
class Bar:
    """A bar behind the lines, from the x axis upwards."""

    left: float
    right: float
    height: float


@dataclass(frozen=True)
class Mark:
    """A single named point."""

    point: Point
    name: str
    color: int = 0
    shape: Shape = "circle"

    @property
    def style(self) -> str:
        """CSS class."""
        return _color_class(self.color)


@dataclass(frozen=True)
class Chart:
    """A chart and its table.

    Attributes:
        key: prefix of HTML identifiers.
        title: heading.
        caption: explains the chart.
        x: horizontal axis.
        y: vertical axis.
        rows: of the table, by x; at least one.
        series: the lines; columns of the table.
        bars: behind the lines.
        marks: in front of the lines.
        diagonal: whether to draw the line x = y.
    """

    key: str
    title: str
    caption: str
    x: Axis
    y: Axis
    rows: Sequence[Row]
    series: Sequence[Series]
    bars: Sequence[Bar] = ()
    marks: Sequence[Mark] = ()
    diagonal: bool = False

    @property
    def dotted(self) -> bool:
        """Whether every point gets a dot."""
        return len(self.rows) <= _MAX_DOTS

    def x_position(self, x: float) -> float:
        """Horizontal position of a value in the drawing."""
        return round(LEFT + self.x.share(x) * (WIDTH - LEFT - RIGHT), 1)

    def y_position(self, y: float) -> float:
        """Vertical position of a value in the drawing."""
        return round(HEIGHT - BOTTOM - self.y.share(y) * (HEIGHT - TOP - BOTTOM), 1)

    def path(self, series: Series) -> str:
        """SVG path through the points of a series, interrupted at gaps."""
        pieces, pen = [], "M"
        for point in series.points:
            if point is None:
                pen = "M"
                continue
            pieces.append(f"{pen}{self.x_position(point.x)} {self.y_position(point.y)}")
            pen = "L"
        return "".join(pieces)


def thin(rows: Sequence[T], most: int = 200) -> list[T]:
    """At most ``most`` rows, evenly spaced, including the first and the last.

    Example:
        >>> thin(range(10), 4)
        [0, 3, 6, 9]
    """
    if len(rows) <= most:
        return list(rows)
    return [rows[round(i * (len(rows) - 1) / (most - 1))] for i in range(most)]


def _color_class(color: int) -> str:
    return f"c{color % COLORS}"


def _round_step(span: float) -> float:
    """1, 2 or 5 times a power of ten, so that four to eight steps make the span."""
    power = 10.0 ** math.floor(math.log10(span / 4))
    return next(power * factor for factor in (5, 2, 1) if power * factor <= span / 4 * 1.0000001)
