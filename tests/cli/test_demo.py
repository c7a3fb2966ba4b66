import json
from pathlib import Path

import pytest

from dualstudent import Recipe, load_recipe
from tests.support.command import Command
from tests.support.recipes import SMALL


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_small(name: str, changes: tuple[str, ...] = ()) -> Recipe:
        return load_recipe(name, [*SMALL, "data.image_size=9", *changes])

    monkeypatch.setattr("dualstudent.recipes.reading.load_recipe", load_small)


@pytest.mark.slow
def test_the_demo_takes_a_new_folder_compares_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "demo").mkdir(parents=True)
    code, shown, messages = command("demo")
    assert code == 0, messages
    folder = tmp_path / "runs" / "demo-2"
    results = {path.parent.name: path for path in folder.glob("*/result.json")}
    assert set(results) == {"demo-0", "demo-supervised-0"}
    for result in results.values():
        for figures in json.loads(result.read_text())["networks"].values():
            assert f"{figures['error']:.2f} %" in shown
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    before = {path: path.stat().st_mtime_ns for path in results.values()}
    code, shown, _ = command("demo", "--out", "runs/demo-2", "--seeds", "2")
    assert code == 0
    assert "over 2 seeds" in shown
    assert (folder / "demo-1" / "result.json").is_file()
    assert {path: path.stat().st_mtime_ns for path in before} == before
