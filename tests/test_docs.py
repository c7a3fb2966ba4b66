import re
from pathlib import Path

import pytest

from dualstudent.methods import METHODS
from dualstudent.recipes import recipe_names

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("https://"):
            assert (page.parent / target).exists(), target


def test_every_method_has_its_paragraph() -> None:
    page = (ROOT / "docs" / "methods.md").read_text()
    for method in METHODS:
        assert f"`{method.Settings.model_fields['name'].default}`" in page
        assert method.summary


def test_every_file_named_in_the_map_exists() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    names = re.findall(
        r"`((?:methods|networks|data|training|recipes|doctor|estimator)/\w+\.py)`", page
    )
    assert len(names) > 5
    for name in names:
        assert (ROOT / "src" / "dualstudent" / name).is_file(), name


def test_commands_name_recipes_that_exist() -> None:
    for page in PAGES:
        for name in re.findall(r"dualstudent train ([a-z0-9-]+)", page.read_text()):
            assert name in recipe_names(), f"{page.name}: {name}"
