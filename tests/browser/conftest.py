"""A real browser, and real pages for it."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dualstudent import Run, train, write_report
from dualstudent.report.page.page import render_page
from tests.support.browser import Opened
from tests.support.recipes import small_recipe
from tests.support.run_data import HOSTILE, make_evaluation, make_run_data

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        pytest.skip("there is no browser: install the Debian package chromium, or Chrome")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=program, args=_OPTIONS)
        yield found
        found.close()


@pytest.fixture(scope="session")
def other_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    recipe = small_recipe("method.name=supervised", "data.labels=20", "schedule.epochs=3")
    return train(recipe, tmp_path_factory.mktemp("runs") / "supervised")


@pytest.fixture(scope="session")
def pages(
    small_run: Run, other_run: Run, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """One run; two side by side; many classes with hostile and endless names."""
    folder = tmp_path_factory.mktemp("pages")
    two = write_report([small_run, other_run], folder / "two.html")
    for count, name in ((12, "few"), (120, "many")):
        names = (HOSTILE, "endless" * 30, *map(str, range(count - 2)))
        run_data = make_run_data(HOSTILE, make_evaluation(900, names, side=32), names, epochs=40)
        (folder / f"{name}.html").write_text(render_page([run_data]), "utf-8")
    return {
        "one": small_run.page,
        "two": two,
        "few": folder / "few.html",
        "many": folder / "many.html",
    }


@pytest.fixture
def opened(browser: "Browser", pages: dict[str, Path]) -> Iterator[Opened]:
    """Opens a page by its name; fails at the end if it complained, or asked for anything else."""
    troubles: list[str] = []
    contexts = []

    def open_page(name: str, width: int = 1280, **settings: Any) -> "Page":
        context = browser.new_context(viewport={"width": width, "height": 900}, **settings)
        contexts.append(context)
        page, address = context.new_page(), pages[name].as_uri()
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: troubles.append(dialog.message))
        page.on("request", lambda request: _note(request.url, address, troubles))
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert troubles == []


def _note(url: str, address: str, troubles: list[str]) -> None:
    if url != address and not url.startswith("data:image/"):
        troubles.append(f"request for {url}")
