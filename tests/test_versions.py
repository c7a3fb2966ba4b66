import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def numbers(version: str) -> list[int]:
    """Without trailing zeros: 1.0 and 1.0.0 are equal."""
    found = [int(number) for number in version.split(".")]
    while found and found[-1] == 0:
        found.pop()
    return found


def test_every_lower_bound_was_tried() -> None:
    """Torch alone has bounds from its documentation."""
    page = (ROOT / "docs" / "versions.md").read_text("utf-8")
    tried = dict(re.findall(r"\| ([\w-]+) \| ([\d.]+) \|", page))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    needed = [
        *project["dependencies"],
        *extras["export"],
        *extras["parquet"],
        *extras["pretrained"],
    ]
    bounds = dict(bound.split(">=") for bound in needed if not bound.startswith("torch>="))
    assert {name: numbers(version) for name, version in bounds.items()} == {
        name: numbers(version) for name, version in tried.items()
    }
