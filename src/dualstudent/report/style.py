"""How pictures look and are kept: one light frame, and the same bytes for the same figure."""

from io import BytesIO
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

PAGE_WIDTH = 8.0  # inches; saved at 150 dots an inch, a little more than a README is wide
LINE_BELOW = 112  # letters of size 9 in that width


def literal(text: str) -> str:
    r"""Text to draw as it is: a $ begins no formula.

    Example:
        >>> literal("5 $")
        '5 \\$'
    """
    return text.replace("$", r"\$")


def light_frame(axes: Axes, title: str = "") -> None:
    """No box, a light grid behind the data, the title flush left."""
    axes.set_title(title, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)


def against_epochs(axes: Axes, title: str = "") -> None:
    """The frame of curves over epochs."""
    light_frame(axes, title)
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))


def save_picture(figure: Figure, stem: Path) -> list[Path]:
    """Write ``stem``.png and ``stem``.svg; returns their paths."""
    png, svg = stem.with_name(f"{stem.name}.png"), stem.with_name(f"{stem.name}.svg")
    figure.savefig(png, dpi=150, facecolor="white")
    svg.write_bytes(as_svg(figure))
    return [png, svg]


def as_svg(figure: Figure) -> bytes:
    """The figure as SVG; equal bytes for equal figures, so without a date.

    Text stays text: sharp at any size, to be searched and read aloud.
    """
    buffer = BytesIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "dualstudent"}):
        figure.savefig(buffer, format="svg", facecolor="white", metadata={"Date": None})
    return buffer.getvalue()
