"""The page as text: whole, escaped, alone, and with the numbers it was given."""

import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256

import pytest

from dualstudent.report.page.page import render_page
from dualstudent.report.page.run_data import RunData
from dualstudent.training.gain import Gain
from tests.support.html_page import Page
from tests.support.run_data import HOSTILE, make_evaluation, make_run_data

NAMES = (HOSTILE, "dog", *map(str, range(5)))


@pytest.fixture(scope="module")
def run_data() -> RunData:
    return make_run_data(HOSTILE, make_evaluation(80, NAMES), NAMES, epochs=3)


@pytest.fixture(scope="module", params=[1, 3])
def text(request: pytest.FixtureRequest, run_data: RunData) -> str:
    runs = [run_data, replace(run_data, name="second"), replace(run_data, name="third")]
    return render_page(runs[: request.param])


def test_names_stay_text(text: str) -> None:
    page = Page(text)
    assert len(page.of("script")) == 1
    assert "alert" not in page.texts["script"][0]
    assert HOSTILE in page.texts["th"]
    assert page.texts["title"][0].startswith(HOSTILE)
    assert any(HOSTILE in image["alt"] for image in page.of("img") if image["alt"])


def test_only_its_own_script_may_run_and_nothing_is_loaded(text: str) -> None:
    page = Page(text)
    policies = [meta["content"] or "" for meta in page.of("meta") if "http-equiv" in meta]
    digest = b64encode(sha256(page.texts["script"][0].encode()).digest()).decode()
    assert policies == [
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        f"script-src 'sha256-{digest}'"
    ]
    links = [
        value or ""
        for _, attributes in page.elements
        for key, value in attributes.items()
        if key in ("href", "src", "xlink:href")
    ]
    assert links
    assert all(link.startswith(("#", "data:image/")) for link in links)
    assert "url(" not in text


def test_it_can_be_read_without_eyes(text: str) -> None:
    page = Page(text)
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    named = [
        name
        for _, attributes in page.elements
        for name in (attributes.get("aria-labelledby") or "").split()
    ]
    inside = [link["href"] or "" for link in page.of("a")]
    assert set(named) | {link.removeprefix("#") for link in inside} <= set(ids)
    assert len(page.of("h1")) == len(page.of("main")) == len(page.of("nav")) == 1
    assert all(image["alt"] for image in page.of("img"))
    assert all(head["scope"] for head in page.of("th"))
    regions = [each for each in page.of("div") if each.get("role") == "region"]
    assert regions
    assert all(region["aria-label"] and region["tabindex"] == "0" for region in regions)


def test_the_numbers_are_those_of_the_run(text: str, run_data: RunData) -> None:
    page = Page(text)
    cells = [cell.replace("\xa0", " ") for cell in page.texts["td"]]
    assert {"12.35 %" if "12.35 %" in cells else "12.34 %", "81.50 %", "97.25 %"} <= set(cells)
    evaluation = run_data.evaluation
    assert evaluation is not None
    counts = [str(count) for row in evaluation.matrix.tolist() for count in row]
    matrix = re.findall(r'<td class="(?:right|wrong|none)"[^>]*>(\d+)<', text)
    assert matrix[: len(counts)] == counts
    assert f"{100 * evaluation.calibration.error:.2f}\u00a0%" in text


def test_a_run_that_was_not_evaluated_says_so_and_shows_its_losses(run_data: RunData) -> None:
    metrics = [record | {"test": {}} for record in run_data.metrics]
    result = run_data.result | {"error": None, "networks": {}}
    blind = replace(run_data, evaluation=None, metrics=metrics, result=result)
    page = Page(render_page([blind]))
    assert any("was not evaluated" in paragraph for paragraph in page.texts["p"])
    assert page.texts["h2"] == ["Learning curves", "Recipe"]
    assert page.texts["h3"] == ["Loss: classification", f"Loss: {HOSTILE.replace('_', ' ')}"]
    assert not page.of("img")


def test_sections_come_in_the_order_of_their_use_and_the_navigation_keeps_it(text: str) -> None:
    page = Page(text)
    sections = ["result", "trust", "classes", "confusion", "images", "learning", "recipe"]
    assert [heading.get("id") for heading in page.of("h2")] == sections
    links = [link["href"] for link in page.of("a")]
    assert links == ["#main", *(f"#{section}" for section in sections)]


def test_it_begins_with_how_often_the_network_in_use_is_right(run_data: RunData) -> None:
    page = Page(render_page([run_data]).replace("\xa0", " "))
    (lead,) = [text for text in page.texts["p"] if "80 test images correctly" in text]
    assert re.findall(r"[\d.]+ %", lead) == ["87.66 %", "81.50 %", "97.25 %"]
    assert page.texts["mark"][0] == "used by predict"
    assert page.texts["dt"][:2] == ["stable predictions", "accuracy on stable"]


def test_its_first_number_is_the_error_of_the_network_in_use(run_data: RunData) -> None:
    networks = run_data.result["networks"]
    networks = networks | {"student2": networks["student2"] | {"error": 3.0}}
    result = run_data.result | {"networks": networks, "error": 7.67}
    text = render_page([replace(run_data, result=result)]).replace("\xa0", " ")
    assert re.findall(r"[\d.]+ %", text.partition("<h1>")[2])[0] in ("12.35 %", "12.34 %")
    assert "the mean error, 7.67 % for student1 and student2." in text


@pytest.mark.parametrize(
    ("count", "words"), [(1, "1 image could not be read and was"), (2, "were")]
)
def test_images_that_were_skipped_are_counted(run_data: RunData, count: int, words: str) -> None:
    text = render_page([replace(run_data, unreadable=count)]).replace("\xa0", " ")
    assert f"{words} skipped." in text


def test_the_comparison_with_labels_alone_is_at_the_top(run_data: RunData) -> None:
    gain = Gain("test", 80, 12.345, 24.69, (4.0, 20.0), None, False)
    text = render_page([replace(run_data, gain=gain)]).replace("\xa0", " ")
    top, _, _ = text.partition("<nav")
    assert re.findall(r'--value:([\d.]+)">([\d.]+ %)', top) == [
        ("0.5000", "12.35 %" if "12.35 %" in top else "12.34 %"),
        ("1.0000", "24.69 %"),
    ]
    assert "The unlabeled images gained 12.3 points" in top


@pytest.mark.parametrize(
    ("errors", "lead"),
    [
        (
            (8.85, 8.10),
            "two has the lowest error: 8.10 %, 0.75 points below one, which may",
        ),
        ((8.85, 2.0), "two has the lowest error: 2.00 %, 6.85 points below one. All were"),
        ((9.0, 30.0, 15.0), "one has the lowest error: 9.00 %, 6.00 points below three. All were"),
        ((5.0, 5.0), "one and two have the same error on the same 80 test images: 5.00 %."),
    ],
)
def test_side_by_side_it_begins_with_the_best(
    run_data: RunData, errors: tuple[float, ...], lead: str
) -> None:
    """By the network that predict uses; the mean over all students says the contrary."""
    networks = run_data.result["networks"]
    runs = [
        replace(
            run_data,
            name=name,
            result=run_data.result
            | {"error": 50 - error}
            | {"networks": networks | {"student1": networks["student1"] | {"error": error}}},
        )
        for name, error in zip(("one", "two", "three"), errors, strict=False)
    ]
    page = Page(render_page(runs).replace("\xa0", " "))
    assert any(text.startswith(lead) for text in page.texts["p"])
    ranked = [text for text in page.texts["td"] if text.endswith(" %")][: len(errors)]
    assert ranked == [f"{error:.2f} %" for error in sorted(errors)]


def test_equal_data_give_equal_bytes(run_data: RunData) -> None:
    assert render_page([run_data]) == render_page([run_data])


def test_every_run_has_a_color_of_the_style_sheet(run_data: RunData) -> None:
    runs = [replace(run_data, name=str(number)) for number in range(10)]
    text = render_page(runs)
    used = set(re.findall(r'class="(?:[^"]* )?(c\d+)[ "]', text))
    assert used == set(re.findall(r"\.(c\d+) {", text)) == {f"c{number}" for number in range(8)}
    marks = re.findall(r'<circle class="mark (c\d+)"', text)
    assert marks[:10] == [f"c{number % 8}" for number in range(10)]
