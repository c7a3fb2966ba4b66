"""Charts as data: rows that a reader steps through, lines through them, and where all that lies.

A chart and the table behind it are made of the same rows, and the page's script reads the table:
what is drawn, what is said under the cursor and what a screen reader finds cannot differ.
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
_DOTS_UP_TO = 30  # rows; more would hide the line


@dataclass(frozen=True)
class Axis:
    """Of a chart.

    Attributes:
        label: what it measures.
        low: where it begins.
        high: where it ends, above ``low``.
        whole: whether only whole numbers make sense.
    """

    label: str
    low: float
    high: float
    whole: bool = False

    @classmethod
    def holding(
        cls, label: str, values: Iterable[float], low: float = 0.0, whole: bool = False
    ) -> "Axis":
        """From ``low`` to a round number above all ``values``."""
        highest = max(values, default=low)
        step = _round_step((highest - low) or 1.0)
        return cls(label, low, low + step * max(math.ceil((highest - low) / step - 1e-9), 1), whole)

    def ticks(self) -> list[float]:
        """Round numbers, about five.

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
        """Where a value lies, from 0 to 1."""
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Point:
    """A value: where it is on the axes, and how it reads."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class Row:
    """Where the cursor can stand: a place on the x axis, and what it is called."""

    x: float
    text: str


@dataclass(frozen=True)
class Series:
    """A line.

    Attributes:
        name: of the line.
        points: one per row, None where there is none.
        color: its number, counted from 0.
        dash: 0 for a solid line.
    """

    name: str
    points: Sequence[Point | None]
    color: int = 0
    dash: int = 0

    @property
    def style(self) -> str:
        """Its classes in the style sheet."""
        return f"{_class_of(self.color)} d{self.dash % 4}"


@dataclass(frozen=True)
class Bar:
    """From the x axis up, behind the lines."""

    left: float
    right: float
    height: float


@dataclass(frozen=True)
class Mark:
    """A point of its own, with its name beside it."""

    point: Point
    name: str
    color: int = 0
    shape: Shape = "circle"

    @property
    def style(self) -> str:
        """Its class in the style sheet."""
        return _class_of(self.color)


@dataclass(frozen=True)
class Chart:
    """What is drawn, and the table behind it.

    Attributes:
        key: for identifiers.
        title: above it.
        caption: in plain words, below it.
        x: axis.
        y: axis.
        rows: of the table, from left to right; at least one.
        series: its columns.
        bars: behind the lines.
        marks: before them.
        diagonal: whether to draw where both axes are equal.
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
        return len(self.rows) <= _DOTS_UP_TO

    def across(self, x: float) -> float:
        """Where a value of the x axis lies in the drawing."""
        return round(LEFT + self.x.share(x) * (WIDTH - LEFT - RIGHT), 1)

    def up(self, y: float) -> float:
        """Where a value of the y axis lies in the drawing."""
        return round(HEIGHT - BOTTOM - self.y.share(y) * (HEIGHT - TOP - BOTTOM), 1)

    def path(self, series: Series) -> str:
        """The line through the points of a series, broken where there is none."""
        pieces, pen = [], "M"
        for point in series.points:
            if point is None:
                pen = "M"
                continue
            pieces.append(f"{pen}{self.across(point.x)} {self.up(point.y)}")
            pen = "L"
        return "".join(pieces)


def thin(rows: Sequence[T], most: int = 200) -> list[T]:
    """At most ``most`` of the rows, evenly, the last one always among them.

    Example:
        >>> thin(range(10), 4)
        [0, 3, 6, 9]
    """
    if len(rows) <= most:
        return list(rows)
    return [rows[round(i * (len(rows) - 1) / (most - 1))] for i in range(most)]


def _class_of(color: int) -> str:
    return f"c{color % COLORS}"


def _round_step(span: float) -> float:
    """1, 2 or 5 times a power of ten, four to eight of which make the span."""
    power = 10.0 ** math.floor(math.log10(span / 4))
    return next(power * factor for factor in (5, 2, 1) if power * factor <= span / 4 * 1.0000001)
