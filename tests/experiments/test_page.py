"""The page: whole, escaped, alone, and the same for the same runs."""

import re
from pathlib import Path

from matplotlib.figure import Figure

from dualstudent.experiments.page import make_heading, write_page
from dualstudent.experiments.reading import load_experiment
from dualstudent.experiments.table import ComparisonTable
from tests.support.experiments import write_small, write_without_values
from tests.support.html_page import Page
from tests.support.made_runs import experiment

HOSTILE = """<script>alert("1")</script> & '$x"""


def drawing(text: str) -> Figure:
    figure = Figure()
    axes = figure.subplots()
    axes.plot([1, 2], [3, 4], "o", clip_on=True)
    axes.imshow([[0, 1]])
    axes.set_title("title of the axes")
    figure.set_label(text)
    return figure


def written(folder: Path) -> str:
    rows = [{"name": HOSTILE, "paper": ["15.74 ± 0.45"]}]
    shown = experiment("bars", rows, title=HOSTILE, place="Table 1")
    table = ComparisonTable(
        ["", "", "paper", "measured"],
        [[HOSTILE, "1k labels", "15.74 ± 0.45", "16.00"], ["MT", "1k labels", "–", "not run"]],
        [f"made smaller: {HOSTILE}", "Written by `dualstudent reproduce table1 --out '<b>'`"],
        [f"By test error: {HOSTILE} > MT."],
    )
    figures = {"one": drawing("first caption"), "two": drawing(HOSTILE)}
    write_page(folder / "index.html", make_heading(shown), table, figures)
    return (folder / "index.html").read_text("utf-8")


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    page = Page(written(tmp_path))
    assert not page.of("script")
    assert not page.of("b")
    assert page.texts["h1"] == [HOSTILE]
    assert page.texts["title"] == [f"Table 1: {HOSTILE}"]
    assert page.texts["figcaption"] == ["first caption", HOSTILE]
    assert page.texts["p"][-3:] == [
        f"By test error: {HOSTILE} > MT.",
        f"made smaller: {HOSTILE}",
        "Written by dualstudent reproduce table1 --out '<b>'",
    ]
    assert page.texts["code"][-1] == "dualstudent reproduce table1 --out '<b>'"


def test_the_table_is_a_table(tmp_path: Path) -> None:
    page = Page(written(tmp_path))
    assert [head["scope"] for head in page.of("th")] == ["col"] * 2 + ["row"] * 4
    assert page.texts["th"] == ["paper", "measured", HOSTILE, "1k labels", "MT", "1k labels"]
    assert page.texts["td"] == ["", "", "15.74 ± 0.45", "16.00", "–", "not run"]
    assert page.texts["caption"] == ["Paper and measured values"]


def test_what_stands_beside_the_measured_values_is_named(tmp_path: Path) -> None:
    assert make_heading(load_experiment("table1")).caption == "Paper and measured values"
    own, without = load_experiment(write_small(tmp_path)), write_without_values(tmp_path)
    assert make_heading(own).caption == "Stated and measured values"
    assert make_heading(load_experiment(without)).caption == "Measured values"


def test_every_picture_has_a_text_alternative_and_ids_of_its_own(tmp_path: Path) -> None:
    text = written(tmp_path)
    page = Page(text)
    pictures = page.of("svg")
    assert [picture["role"] for picture in pictures] == ["img", "img"]
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    labels = [a["aria-labelledby"] for _, a in page.elements if "aria-labelledby" in a]
    assert labels == ["one-caption", "two-caption", "table-caption"]
    used = re.findall(r"url\(#([^)]+)\)", text) + re.findall(r'href="#([^"]+)"', text)
    assert used
    assert set(labels) | set(used) <= set(ids)


def test_the_page_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    page = Page(written(tmp_path))
    links = [
        value or ""
        for _, attributes in page.elements
        for key, value in attributes.items()
        if key.split(":")[-1] in ("href", "src")
    ]
    assert links
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in links)
    assert not page.of("link")


def test_equal_results_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    assert written(tmp_path / "a") == written(tmp_path / "b")
