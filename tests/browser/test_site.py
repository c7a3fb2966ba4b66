"""The documentation site, opened as a file."""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_search_finds_a_name_without_a_server(browser: "Browser", site: Path) -> None:
    troubles: list[str] = []
    page = browser.new_page()
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("requestfailed", lambda request: troubles.append(request.url))
    page.goto((site / "reference" / "methods.html").as_uri())
    page.get_by_role("textbox", name="Search").fill("SemiSupervisedKFold")
    page.locator(".md-search-result__link", has_text="SemiSupervisedKFold").first.click()
    page.wait_for_url("**/using.html*")
    assert page.get_by_role("heading", name="SemiSupervisedKFold").count() == 1
    page.close()
    assert troubles == []
