"""The HTML page of an experiment: table and figures in one file."""

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from dualstudent.experiments.schema import Experiment
from dualstudent.experiments.table import ComparisonTable
from dualstudent.report.html import load_templates
from dualstudent.report.style import render_svg

_SVG, _LINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
ET.register_namespace("", _SVG)
ET.register_namespace("xlink", _LINK)


@dataclass(frozen=True)
class Heading:
    """What the page and its table are called.

    Attributes:
        tab: title of the browser's tab.
        title: heading of the page.
        subtitle: a line below it.
        caption: of the table.
    """

    tab: str
    title: str
    subtitle: str
    caption: str


@dataclass(frozen=True)
class _Picture:
    name: str
    caption: str
    svg: str


def make_heading(experiment: Experiment) -> Heading:
    """The heading of a table or figure of the paper, or of the user's own."""
    paper = (
        " of “Dual Student: Breaking the Limits of the Teacher in Semi-supervised Learning” "
        "(ICCV 2019)"
    )
    reference = f"{experiment.reference} and " if experiment.reference else ""
    return Heading(
        f"{experiment.place}: {experiment.title}",
        experiment.title,
        experiment.place + ("" if experiment.own else paper),
        f"{reference}measured values".capitalize(),
    )


def write_page(
    path: Path, heading: Heading, table: ComparisonTable, figures: Mapping[str, Figure]
) -> None:
    """Write the page; it works offline, without scripts, and in screen readers.

    Args:
        path: of the page.
        heading: of the page.
        table: with notes.
        figures: name → figure, whose label is its caption.
    """
    pictures = [
        _Picture(name, str(figure.get_label()), make_inline_svg(name, figure))
        for name, figure in figures.items()
    ]
    headers = next((i for i, column in enumerate(table.columns) if column), 0)
    page = (
        load_templates("dualstudent.experiments", ".")
        .get_template("page.html")
        .render(heading=heading, table=table, headers=headers, pictures=pictures)
    )
    path.write_text(page, "utf-8")


def make_inline_svg(name: str, figure: Figure) -> str:
    """The figure as an SVG element that is described by the element ``NAME-caption``.

    Its identifiers begin with the name, so that they are unique on the page.
    """
    root = ET.fromstring(render_svg(figure))
    for metadata in root.findall(f"{{{_SVG}}}metadata"):
        root.remove(metadata)
    for element in root.iter():
        for key, value in element.attrib.items():
            if key == "id":
                element.set(key, f"{name}-{value}")
            elif key == f"{{{_LINK}}}href" and value.startswith("#"):
                element.set(key, f"#{name}-{value[1:]}")
            elif "url(#" in value:
                element.set(key, value.replace("url(#", f"url(#{name}-"))
    for size in ("width", "height"):  # the page sets the size; viewBox keeps the shape
        del root.attrib[size]
    root.attrib |= {"role": "img", "aria-labelledby": f"{name}-caption"}
    return ET.tostring(root, encoding="unicode")
