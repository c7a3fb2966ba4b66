"""The style of all matplotlib figures, and how they are saved."""

from io import BytesIO
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

PAGE_WIDTH = 8.0  # inches; saved at 150 dots an inch, a little more than a README is wide
LINE_LENGTH = 112  # characters of size 9 in that width


def escape_math(text: str) -> str:
    r"""Escape ``$``, which would begin a formula.

    Example:
        >>> escape_math("5 $")
        '5 \\$'
    """
    return text.replace("$", r"\$")


def style_axes(axes: Axes, title: str = "") -> None:
    """Set a title on the left, a light grid, and no frame at the top and right."""
    axes.set_title(title, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)


def style_epoch_axes(axes: Axes, title: str = "") -> None:
    """Style axes whose x axis counts epochs."""
    style_axes(axes, title)
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))


def save_picture(figure: Figure, stem: Path) -> list[Path]:
    """Write ``stem``.png and ``stem``.svg, and return their paths."""
    png, svg = stem.with_name(f"{stem.name}.png"), stem.with_name(f"{stem.name}.svg")
    figure.savefig(png, dpi=150, facecolor="white")
    svg.write_bytes(render_svg(figure))
    return [png, svg]


def render_svg(figure: Figure) -> bytes:
    """The figure as SVG with real text; without a date, so that equal figures give equal bytes."""
    buffer = BytesIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "dualstudent"}):
        figure.savefig(buffer, format="svg", facecolor="white", metadata={"Date": None})
    return buffer.getvalue()
