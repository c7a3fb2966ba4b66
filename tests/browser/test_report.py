"""The page of runs as a reader meets it: in a browser, by mouse, by keyboard, by light and dark."""

from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import pytest
import torch

from dualstudent import Run, load_trained
from dualstudent.calibration import (
    agreed_point,
    confusion_matrix,
    coverage_curve,
    expected_calibration_error,
    stable_point,
)
from dualstudent.training.inference import Predictions, predict
from tests.support.browser import Opened
from tests.support.run_data import HOSTILE

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = pytest.mark.browser

Kind = Literal[
    "link", "slider", "img", "region", "table", "navigation", "banner", "main", "contentinfo"
]
NAMES = ("one", "two", "few", "many")


def shown(locator: "Locator") -> list[str]:
    """What it reads, wherever it is."""
    return [text.replace("\xa0", " ").strip() for text in locator.all_text_contents()]


def percent(value: float) -> str:
    return f"{value:.2f} %"


def chart(page: "Page", title: str) -> "Locator":
    heading = page.get_by_role("heading", name=title, exact=True)
    return page.locator("figure.chart").filter(has=heading)


def test_what_it_shows_are_the_numbers_of_the_run(opened: Opened, small_run: Run) -> None:
    page, result = opened("one"), small_run.read_result()
    training = load_trained(small_run)
    labels = training.data.test_labels
    found = Predictions.join(
        predict(
            training.method,
            training.data.test,
            torch.arange(len(labels)),
            training.recipe.seed,
            "cpu",
        )
    ).add_truth(labels)
    figures = result["networks"]["student1"]

    assert shown(page.locator(".number strong")) == [percent(figures["error"])]
    assert shown(page.locator(".facts strong")) == [
        percent(figures["stable_share"]),
        percent(figures["stable_accuracy"]),
        percent(100 * expected_calibration_error(found)),
    ]
    rows = page.get_by_role("region", name="Figures of every network").locator("tbody tr")
    for row, network in zip(rows.all(), result["networks"].values(), strict=True):
        assert shown(row.locator("td"))[0] == percent(network["error"])
    cells = shown(page.locator("table.matrix tbody td"))
    assert list(map(int, cells)) == confusion_matrix(found).flatten().tolist()
    by_class = shown(page.locator("table.classes tbody td:nth-of-type(2)"))
    assert by_class == [percent(value) for value in figures["class_accuracy"]]
    on_stable = shown(page.locator("table.classes tbody td:nth-of-type(3)"))
    of_class = [int((found.stable & (found.labels == place)).sum()) for place in range(10)]
    assert on_stable == [
        "–" if value is None else f"{percent(value)} of {count}"
        for value, count in zip(figures["stable_class_accuracy"], of_class, strict=True)
    ]
    marks = [stable_point(found), agreed_point(found)]
    assert shown(page.locator(".marks b")) == [
        f"{percent(100 * (point.accuracy or 0))} of {percent(100 * point.coverage)}"
        for point in marks
    ]
    last = shown(chart(page, "Accuracy by share accepted").locator("tbody tr td"))[-1]
    assert last.startswith(percent(100 * (coverage_curve(found)[-1].accuracy or 0)))


def test_a_chart_is_read_by_mouse_and_by_keyboard(opened: Opened, small_run: Run) -> None:
    page, metrics = opened("one"), small_run.read_metrics()
    figure = chart(page, "Test error")
    plot, readout = figure.locator("svg.plot"), figure.locator(".readout")
    expected = [
        [f"epoch {record['epoch']}"]
        + [percent(record["test"][name]["error"]) for name in ("student1", "student2")]
        for record in metrics
    ]

    def read() -> list[str]:
        return [*shown(readout.locator(".at")), *shown(readout.locator("b"))]

    assert read() == expected[-1]
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 0.5 * box["height"])
    assert read() == expected[0]
    page.mouse.move(0, 0)
    assert read() == expected[-1]

    plot.focus()
    for key, epoch in (
        ("Home", 0),
        ("ArrowRight", 1),
        ("ArrowRight", 1),
        ("ArrowLeft", 0),
        ("End", 1),
    ):
        page.keyboard.press(key)
        assert read() == expected[epoch], key
        assert plot.get_attribute("aria-valuetext") == expected[epoch][0]
    assert plot.get_attribute("role") == "slider"
    assert readout.get_attribute("aria-live") == "polite"


def test_the_dots_under_the_cursor_lie_where_the_axis_says(opened: Opened, small_run: Run) -> None:
    page = opened("one")
    figure = chart(page, "Test error")
    ticks = [
        (float(text), float(place.get_attribute("y") or "nan"))
        for place in figure.locator(".grid text.y").all()
        for text in shown(place)
    ]
    (low, bottom), (high, top) = ticks[0], ticks[-1]
    figure.locator("svg.plot").focus()
    for key, record in (("Home", 0), ("End", -1)):
        page.keyboard.press(key)
        for dot, network in zip(
            figure.locator(".dot").all(),
            small_run.read_metrics()[record]["test"].values(),
            strict=True,
        ):
            height = bottom + (network["error"] - low) / (high - low) * (top - bottom)
            assert float(dot.get_attribute("cy") or "nan") == pytest.approx(height, abs=0.1)
            assert dot.get_attribute("visibility") == "visible"


def test_runs_stand_side_by_side(opened: Opened, small_run: Run, other_run: Run) -> None:
    page = opened("two")
    assert shown(page.locator("h1")) == ["2 runs side by side"]
    few, more = (
        next(iter(run.read_result()["networks"].values()))["error"]
        for run in (small_run, other_run)
    )
    winner = min((few, small_run), (more, other_run), key=lambda pair: pair[0])[1]
    assert shown(page.locator(".lead"))[0].startswith(
        f"{winner.folder.name} has the lowest error: {percent(min(few, more))}, "
    )
    boxes = [each.bounding_box() for each in page.locator("#confusion ~ .beside > div").all()]
    left, right = (box for box in boxes if box is not None)
    assert left["y"] == right["y"]
    assert left["x"] + left["width"] <= right["x"]
    differing = shown(page.get_by_role("region", name="Settings that differ").locator("tbody th"))
    assert {"method.name differs", "data.labels differs", "schedule.epochs differs"} <= set(
        differing
    )
    assert not any(text.startswith("seed") for text in differing)
    figure = chart(page, "Test error")
    assert shown(figure.locator(".readout .at")) == ["epoch 3"]
    assert shown(figure.locator(".readout b")) == [
        "–",  # this run ended before
        "–",
        percent(other_run.read_result()["error"]),
    ]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [360, 768])
def test_nothing_is_wider_than_a_small_screen(opened: Opened, name: str, width: int) -> None:
    page = opened(name, width=width)
    for summary in page.locator("summary").all():
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate("[...document.images].every((image) => image.naturalWidth > 0)")


@pytest.mark.parametrize("name", ["few", "two"])
def test_a_matrix_of_ten_classes_is_shown_whole(opened: Opened, name: str) -> None:
    """Also beside another one, and with long names, which stand upright."""
    regions = opened(name, width=1100).locator(".scroll:has(.matrix)").all()
    assert regions
    for region in regions:
        assert region.evaluate("(e) => e.scrollWidth <= e.clientWidth")


@pytest.mark.parametrize("name", NAMES)
def test_everything_has_a_name_and_headings_a_level(opened: Opened, name: str) -> None:
    page = opened(name)
    levels = page.evaluate(
        "[...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map((h) => Number(h.tagName[1]))"
    )
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(below - above <= 1 for above, below in pairwise(levels))
    for summary in page.locator("summary").all():
        summary.click()
    kinds: tuple[Kind, ...] = ("link", "slider", "img", "region", "table", "navigation")
    for kind in kinds:
        found = page.get_by_role(kind)
        assert found.count()
        assert found.evaluate_all(NAMELESS) == []
    assert page.evaluate("document.documentElement.lang") == "en"
    landmarks: tuple[Kind, ...] = ("banner", "main", "contentinfo", "navigation")
    for landmark in landmarks:
        assert page.get_by_role(landmark).count() == 1


NAMELESS = """(elements) => elements.filter((e) => {
  const named = (e.getAttribute("aria-labelledby") ?? "").split(" ").filter(Boolean)
    .map((id) => document.getElementById(id).textContent).join(" ");
  const table = e.tagName === "TABLE"
    && (e.caption?.textContent ?? e.closest("[aria-label]")?.ariaLabel);
  return !(named || e.ariaLabel || e.alt || table || e.textContent.trim());
}).map((e) => e.outerHTML.slice(0, 200))"""


CONTRAST = """(selector) => {
  const parts = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = (color) => {
    const [r, g, b] = parts(color).slice(0, 3).map((v) => v / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = light(getComputedStyle(document.body).backgroundColor);
  return [...document.querySelectorAll(selector)].map((e) => {
    const style = getComputedStyle(e);
    const ink = light(e.closest("svg") ? style.fill : style.color);
    return (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
  });
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_can_both_be_read(opened: Opened, scheme: str) -> None:
    page = opened("one", color_scheme=scheme)
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 22, 26)"}[scheme]
    for selector, least in (
        ("p, th, td, dt, dd, summary, a, figcaption, .plot text", 4.5),
        (".point, .mark", 3.0),
    ):
        ratios = page.evaluate(CONTRAST, selector)
        assert ratios
        assert min(ratios) >= least, selector


def test_paper_is_white_and_shows_the_recipe(opened: Opened) -> None:
    page = opened("one", color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("nav").is_visible()
    assert page.get_by_text("optimizer.momentum").is_visible()


@pytest.mark.parametrize("name", ["few", "many"])
def test_html_in_names_is_shown_as_text(opened: Opened, name: str) -> None:
    page = opened(name)
    assert shown(page.locator("h1")) == [HOSTILE]
    assert HOSTILE in shown(page.locator("table.classes tbody th"))
    assert page.locator("script").count() == 1
    assert page.locator("img.heat").count() == (name == "many")


def test_without_scripts_everything_is_there(opened: Opened, small_run: Run) -> None:
    page = opened("one", java_script_enabled=False)
    error = percent(small_run.read_result()["networks"]["student1"]["error"])
    assert shown(chart(page, "Test error").locator(".readout b"))[0] == error
