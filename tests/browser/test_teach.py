"""Teaching as a person meets it: in a browser, by keyboard, with kills in between."""

import csv
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import pytest
from PIL import Image

from dualstudent import load_mnist_5k
from dualstudent.data.images.tables import list_table
from dualstudent.teach.server import opening_page
from tests.support.teach_page import Teaching

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

pytestmark = pytest.mark.browser

HOSTILE = "<img src=x onerror=alert(1)>\"'"
KEYS = "1234567890"
Open = Callable[..., "Page"]


@pytest.fixture
def open_page(browser: "Browser") -> Iterator[Open]:
    """Opens a page; fails at the end if it complained, or asked anybody else for anything."""
    troubles: list[str] = []
    contexts = []

    def note(url: str, host: str) -> None:
        if urlsplit(url).netloc not in (host, ""):
            troubles.append(url)

    def open_(address: str, width: int = 1280, height: int = 900, **settings: Any) -> "Page":
        context = browser.new_context(viewport={"width": width, "height": height}, **settings)
        contexts.append(context)
        page, host = context.new_page(), urlsplit(address).netloc
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: troubles.append(dialog.message))
        page.on("request", lambda request: note(request.url, host))
        page.set_default_timeout(120_000)  # the machine may be busy
        page.goto(address)
        return page

    yield open_
    for context in contexts:
        context.close()
    # A browser notes every request that failed, as those of a killed program do.
    assert [text for text in troubles if "Failed to load resource" not in text] == []


def write_mnist(folder: Path, count: int) -> Path:
    """Digits of 28 × 28 pixels; the name says the class, and is hostile."""
    digits = load_mnist_5k("train")
    folder.mkdir()
    every = len(digits.labels) // count
    for number in range(count):
        label = int(digits.labels[every * number])
        image = Image.fromarray(digits.pixels[every * number, 0].numpy())
        image.save(folder / f"{label} {number} <b>&amp;'\".png")
    return folder


def read_labels(folder: Path) -> dict[str, str]:
    """Name of an image → its label now, by the rows of the journal."""
    with (folder.with_name(f"{folder.name}-labels") / "labels.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["path"]]
    last = {Path(row["path"]).name: row["label"] for row in rows}
    return {name: label for name, label in last.items() if label}


def shown(page: "Page") -> str:
    """The name of the image that is shown, once it can be seen."""
    page.locator("img.large").evaluate("image => image.decode()")
    return page.locator(".caption .file").text_content() or ""


def add_class(page: "Page", name: str) -> None:
    """By keyboard: the image that is shown gets the new class."""
    page.keyboard.press("+")
    page.keyboard.type(name)
    page.keyboard.press("Enter")
    page.locator("#classes .class .name").get_by_text(name, exact=True).wait_for()


def wait_saved(page: "Page", count: int) -> None:
    page.locator("#labels").get_by_text(f"{count:,}", exact=True).wait_for()


def label_by_key(page: "Page", names: list[str]) -> str:
    """Give the true label of the image that is shown; returns the name of the image."""
    name = shown(page)
    if name[0] in names:
        page.keyboard.press(KEYS[names.index(name[0])])
    else:
        add_class(page, name[0])
        names.append(name[0])
    page.locator(".caption .file").filter(has_not_text=name).wait_for()
    return name


def test_a_whole_round_by_keyboard_with_kills(tmp_path: Path, open_page: Open) -> None:
    folder = write_mnist(tmp_path / "digits", 300)
    given: dict[str, str] = {}
    names: list[str] = []
    for target in (15, 40, 70):
        with Teaching(folder) as teaching:
            page = open_page(teaching.address)
            shown(page)
            assert page.locator("#classes .class .name").all_text_contents() == names
            while len(given) < target:
                name = label_by_key(page, names)
                assert name not in given
                given[name] = name[0]
            wait_saved(page, len(given))
            if target == 40:
                page.keyboard.press("Backspace")
                wait_saved(page, len(given) - 1)
                page.reload()
                wait_saved(page, len(given) - 1)
                last = list(given)[-1]
                del given[last]
            if target == 70:
                page.locator("#accuracy").get_by_text("%").wait_for()
                for _ in range(6):
                    name = label_by_key(page, names)
                    given[name] = name[0]
                page.locator("#news").get_by_text("changed").wait_for()
                page.locator("#points tbody tr").nth(1).wait_for(state="attached")
            teaching.kill()
        assert read_labels(folder) == given
    listing = list_table(folder.with_name("digits-labels") / "labels.csv")
    assert (len(listing.labeled), len(listing)) == (76, 300)
    history = (folder.with_name("digits-labels") / "history.jsonl").read_text().splitlines()
    last_point = json.loads(history[-1])
    assert last_point["measured"] >= 10
    assert last_point["correct"] / last_point["measured"] > 0.3  # 0.9 here; ten classes


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Teaching, Path]]:
    """A folder with hostile names and classes, and an image that cannot be read."""
    folder = write_mnist(tmp_path_factory.mktemp("teach") / 'a<b>&"', 60)
    (folder / "broken <i>.png").write_bytes(b"no image")
    with Teaching(folder) as teaching:
        yield teaching, folder


def test_hostile_names_are_text_and_every_answer_has_its_key(
    taught: tuple[Teaching, Path], open_page: Open
) -> None:
    teaching, folder = taught
    page = open_page(teaching.address)
    shown(page)
    before = len(read_labels(folder))
    add_class(page, HOSTILE)
    add_class(page, "other")
    wait_saved(page, before + 2)
    page.locator("#classes .class").last.focus()
    page.keyboard.press("Enter")  # as those do who hear the page
    wait_saved(page, before + 3)
    assert page.locator("#classes .class:focus .name").text_content() == "other"
    page.locator("#stage").focus()
    assert page.locator("h1").text_content() == folder.name
    assert page.locator("b, i").count() == 0
    for key, event in ((" ", "skipped"), ("/", "not sure"), ("-", "none of these")):
        shown(page)
        page.keyboard.press(key)
        page.locator("#saved").get_by_text(event).wait_for()
    assert set(read_labels(folder).values()) == {HOSTILE, "other"}
    page.keyboard.press("Enter")
    page.locator(".frame.zoomed").wait_for()
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")
    page.locator("#unreadable summary").get_by_text("1 files").wait_for()
    page.locator("#tab-classes").click()
    page.get_by_role("heading", name="Doubtful labels").wait_for()
    page.locator(".pick button").first.focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Rename").wait_for()
    assert page.locator(".pick button:focus").count() == 1  # it is another element by now
    assert page.locator("b, i").count() == 0
    assert {"textbox", "heading"} <= read_aloud(page)


def test_a_grid_is_labeled_by_keyboard_many_at_once(
    taught: tuple[Teaching, Path], open_page: Open
) -> None:
    teaching, folder = taught
    page = open_page(teaching.address)
    shown(page)
    before = read_labels(folder)
    if not before:
        add_class(page, "other")
        wait_saved(page, 1)
        before = read_labels(folder)
    page.keyboard.press(",")
    page.locator(".tile").nth(19).wait_for()
    assert {"listbox", "option"} <= read_aloud(page)
    page.locator(".tile").first.focus()
    for _ in range(2):
        page.keyboard.press("Shift+ArrowRight")
    assert page.locator(".tile[aria-selected=true]").count() == 3
    page.keyboard.press("1")
    page.locator("#saved").get_by_text("3 images").wait_for()
    assert len(read_labels(folder)) == len(before) + 3
    page.keyboard.press("1")
    wait_saved(page, len(before) + 4)
    page.keyboard.press("Control+z")
    page.locator("#saved").get_by_text("Undone").wait_for()
    assert page.locator(".tile .given").count() == 3  # the others are shown as they are
    page.keyboard.press("Control+z")
    page.locator("#saved").get_by_text("Undone: 3 images").wait_for()
    assert read_labels(folder) == before


def test_without_keys_by_mouse_or_touch(tmp_path: Path, open_page: Open) -> None:
    folder = write_mnist(tmp_path / "digits", 120)
    names = sorted(path.name for path in folder.iterdir())[::4]
    classes = sorted({name[0] for name in names})
    table = ["path,label"]
    table += ['"{}",{}'.format(name.replace('"', '""'), name[0]) for name in names]
    with Teaching(folder) as teaching:
        address, origin = teaching.address, {"origin": teaching.address.rsplit("/", 2)[0]}
        sent = "\n".join(table).encode()
        httpx.post(f"{address}import", content=sent, headers=origin, timeout=60)
        end = time.monotonic() + 300
        while not (name := find_large_class(address)):
            assert time.monotonic() < end
            time.sleep(0.2)
        page = open_page(address, has_touch=True, width=360)
        shown(page)
        page.locator("#grid").tap()
        page.locator(".tile").nth(2).wait_for()
        for place in (0, 2):
            page.locator(".tile").nth(place).tap()
        assert page.locator(".tile[aria-selected=true]").count() == 2
        page.locator("#skip").tap()
        page.locator("#saved").get_by_text("2 images").wait_for()

        page.locator("#tab-classes").tap()
        page.locator(".pick button").nth(classes.index(name)).tap()
        part = page.locator(".check-part").filter(has_text=f"seem to be {name}")
        odd = (part.locator(".tile").first.get_attribute("aria-label") or "").split(",")[0]
        part.locator(".tile").first.tap()
        page.get_by_text("1 chosen:").wait_for()
        page.locator("#none").tap()
        page.locator("#saved").get_by_text("none of these").wait_for()
        part.get_by_role("button", name="Label all shown").tap()
        page.locator("#saved").get_by_text(f"images, {name}.").wait_for()
        assert odd not in read_labels(folder)
        page.locator("#undo").tap()
        part.locator(".tile.done").first.wait_for(state="detached")
        assert len(read_labels(folder)) == 30
        for _ in range(2):  # what was undone can be done again
            page.locator(".manage input").fill("renamed")
            page.get_by_role("button", name="Rename").tap()
            page.locator(".pick").get_by_text("renamed").wait_for()
            page.locator("#undo").tap()
            page.locator(".pick").get_by_text("renamed").wait_for(state="detached")
        page.locator(".manage input").fill("renamed")
        page.get_by_role("button", name="Rename").tap()
        page.locator(".pick").get_by_text("renamed").wait_for()
        page.locator("#tab-label").tap()
        page.locator("#single").tap()
        name = shown(page)
        page.locator("#undo").tap()
        page.locator("#saved").get_by_text("Undone").wait_for()
        assert shown(page) == name  # nobody is asked for what has a label


def find_large_class(address: str) -> str:
    """The class that most images seem to be of; empty while nothing was learned."""
    found = {
        name: httpx.get(f"{address}class?name={name}", timeout=60).json()["count"]
        for name in "0123456789"
    }
    return max(found, key=found.__getitem__) if any(found.values()) else ""


def test_two_tabs_do_not_ask_for_the_same(taught: tuple[Teaching, Path], open_page: Open) -> None:
    teaching, folder = taught
    first, second = open_page(teaching.address), open_page(teaching.address)
    assert shown(first) != shown(second)
    count = len(read_labels(folder))
    for page in (first, second):
        add_class(page, f"by tab {page is first}")
    for page in (first, second):  # each sees what the other did
        wait_saved(page, count + 2)


NAMED = {"button", "checkbox", "combobox", "dialog", "image", "link", "listbox", "option"}
NAMED |= {"progressbar", "tab", "tabpanel", "tablist", "textbox"}


def read_aloud(page: "Page") -> set[str]:
    """The roles that a screen reader meets; everything that can be used has a name."""
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")
    nodes = [node for node in tree["nodes"] if not node["ignored"]]
    roles = [(str(node["role"]["value"]), node.get("name", {}).get("value")) for node in nodes]
    assert [role for role, name in roles if role in NAMED and not name] == []
    return {role for role, _ in roles}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1024, 3840])
def test_it_fits_every_screen(
    taught: tuple[Teaching, Path], open_page: Open, scheme: str, width: int
) -> None:
    page = open_page(taught[0].address, width=width, height=900, color_scheme=scheme)
    shown(page)
    for summary in page.locator("summary:visible").all():
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    box = page.locator("img.large").bounding_box()
    assert box is not None
    assert box["width"] > 0.5 * min(width, 600)
    assert {"banner", "main", "complementary", "tablist", "status"} <= read_aloud(page)


def test_a_file_opens_the_page_which_asks_again_for_images(tmp_path: Path, open_page: Open) -> None:
    folder = write_mnist(tmp_path / "digits", 2)
    with Teaching(folder) as teaching, opening_page(teaching.address, tmp_path) as opener:
        page = open_page(teaching.address)
        page.goto(opener.as_uri())
        page.wait_for_url(teaching.address)
        shown(page)
        add_class(page, "zero")
        page.keyboard.press("1")
        page.get_by_text("Every image has its answer").wait_for()
        page.locator("#accuracy-more").get_by_text("too few images").wait_for()
        failures = iter(range(5))

        def fail_at_first(route: "Route") -> None:
            if next(failures, None) is None:
                route.continue_()
            else:
                route.abort()

        page.route("**/next", fail_at_first)
        origin = {"origin": teaching.address.rsplit("/", 2)[0]}
        httpx.post(f"{teaching.address}undo", json={}, headers=origin, timeout=60)
        shown(page)


def test_an_image_is_shown_only_when_it_can_be_answered(tmp_path: Path, open_page: Open) -> None:
    folder = write_mnist(tmp_path / "digits", 10)
    with Teaching(folder) as teaching:
        page = open_page(teaching.address)
        failures = iter(range(3))
        page.route(
            "**/state?*",
            lambda route: route.continue_() if next(failures, None) is None else route.abort(),
        )
        page.reload()
        shown(page)
        add_class(page, "zero")
        wait_saved(page, 1)


def test_no_image_is_passed_over_because_the_program_is_gone(
    tmp_path: Path, open_page: Open
) -> None:
    folder = write_mnist(tmp_path / "digits", 10)
    with Teaching(folder) as teaching:
        page = open_page(teaching.address)
        page.route("**/image/**", lambda route: route.abort())
        page.reload()
        page.get_by_role("alert").get_by_text("cannot be reached").wait_for()
        shown_name = page.locator(".caption .file").text_content()
        assert shown_name in {file.name for file in folder.iterdir()}


def test_when_the_program_has_ended_the_page_says_so(tmp_path: Path, open_page: Open) -> None:
    folder = write_mnist(tmp_path / "digits", 10)
    with Teaching(folder) as teaching:
        page = open_page(teaching.address)
        name = shown(page)
        teaching.kill()
        page.keyboard.press("+")
        page.keyboard.type("zero")
        page.keyboard.press("Enter")
        page.get_by_role("alert").get_by_text("cannot be reached").wait_for()
        assert shown(page) == name
    assert read_labels(folder) == {}


def test_fifty_thousand_images(tmp_path: Path, open_page: Open) -> None:
    folder = write_mnist(tmp_path / "digits", 50)
    originals = sorted(folder.iterdir())
    for number in range(50_000 - len(originals)):
        (folder / f"more-{number}.png").hardlink_to(originals[number % len(originals)])
    with Teaching(folder) as teaching:
        page = open_page(teaching.address)
        shown(page)
        page.locator("#labels-more").get_by_text("50,000 images").wait_for()
        page.locator("#news").get_by_text("20,000 of 50,000").wait_for()
        add_class(page, "zero")
        wait_saved(page, 1)
