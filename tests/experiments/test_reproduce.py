import dataclasses
from pathlib import Path

import pytest

from dualstudent import UserError
from dualstudent.experiments.reproduce import Request, plan_request, reproduce
from tests.support.experiments import write_small


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write_small(tmp_path)


def run(request: Request) -> Path:
    return reproduce(request, plan_request(request)).folder


@pytest.mark.slow
def test_a_part_is_run_alone_and_what_is_finished_needs_no_data(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request(str(small), "cpu", seeds=1, out=tmp_path / "out", only="supervised")
    folder = run(request)
    lines = (folder / "table.md").read_text().splitlines()
    assert "not run" not in lines[2]
    assert lines[3].startswith("| both | more | – | not run |")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setattr("dualstudent.experiments.reproduce.prepare", _no_data)
    run(request)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    with pytest.raises(UserError, match="no data"):
        run(dataclasses.replace(request, only=""))


def _no_data(*_: object) -> None:
    raise UserError("no data")


@pytest.mark.slow
def test_a_run_of_another_recipe_is_not_shown_for_this_one(small: Path, tmp_path: Path) -> None:
    request = Request(str(small), "cpu", seeds=1, out=tmp_path / "out", only="supervised")
    run(request)
    (kept,) = (tmp_path / "out" / "runs").iterdir()
    recipe = kept / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("momentum = 0.9", "momentum = 0.8"))
    with pytest.raises(UserError, match=kept.name):
        run(dataclasses.replace(request, only="both"))
    assert list((tmp_path / "out" / "runs").iterdir()) == [kept]  # nothing was trained before
