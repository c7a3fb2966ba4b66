"""An experiment as a user runs it: real processes, real digits."""

import dataclasses
import io
import shlex
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.console import Console

from dualstudent import Recipe, Run, UserError
from dualstudent.experiments.reproduce import Request, reproduce
from dualstudent.grid import run_grid
from dualstudent.signals import Interrupted
from tests.support.command import Command
from tests.support.experiments import SMALL
from tests.support.runs import RaisesSignalAt


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def stamps(folder: Path) -> dict[str, int]:
    return {p.parent.name: p.stat().st_mtime_ns for p in folder.glob("runs/*/result.json")}


def test_an_interrupted_experiment_continues_and_repeats_nothing(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    words = [str(small), "--budget", "cpu", "--seeds", "2", "--out", str(out)]

    def stopped_in_the_second_run(recipes: Mapping[str, Recipe], folder: Path, *_: object) -> None:
        run_grid(recipes, folder, RaisesSignalAt(3, signal.SIGTERM), workers=1)

    request = Request(str(small), "cpu", 2, out)
    with monkeypatch.context() as patch:
        patch.setattr("dualstudent.experiments.reproduce.run_grid", stopped_in_the_second_run)
        with pytest.raises(Interrupted) as stop:
            reproduce(request, Console(quiet=True))
    assert stop.value.command == f"dualstudent reproduce {' '.join(words)}"
    before = stamps(out)
    assert len(before) == 1
    assert not (out / "small").exists()

    shown = io.StringIO()
    reproduce(request, Console(file=shown))
    after = stamps(out)
    assert len(after) == 4
    assert {name: after[name] for name in before} == before
    table = (out / "small" / "table.md").read_text()
    assert "| supervised | more | 7.25 |" in table
    assert "two short epochs of small batches" in table
    assert f"`dualstudent reproduce {' '.join(words)}`" in table
    assert "two short epochs of small batches" in " ".join(shown.getvalue().split())
    assert len((out / "small" / "table.csv").read_text().splitlines()) == 5
    page = (out / "small" / "index.html").read_text()
    assert "two short epochs of small batches" in page
    assert "<svg" in page
    assert (out / "small" / "bars.png").read_bytes().startswith(b"\x89PNG")
    assert "Made smaller: two short epochs" in (out / "small" / "bars.svg").read_text()


def test_a_part_is_run_alone_and_what_is_finished_needs_no_data(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request(str(small), "cpu", seeds=1, out=tmp_path / "out", only="supervised")
    folder = reproduce(request, Console(quiet=True))
    lines = (folder / "table.md").read_text().splitlines()
    assert "not run" not in lines[2]
    assert lines[3].startswith("| both | more | – | not run |")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setattr("dualstudent.experiments.reproduce.prepare", _no_data)
    reproduce(request, Console(quiet=True))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    with pytest.raises(UserError, match="no data"):
        reproduce(dataclasses.replace(request, only=""), Console(quiet=True))


def test_every_run_can_be_changed(small: Path, tmp_path: Path, command: Command) -> None:
    out = tmp_path / "out"
    words = ("reproduce", small, "--budget", "cpu", "--out", out, "--only", "supervised")
    changes = ("--set", "schedule.epochs=1", "--set", "data.labels=40")
    code, shown, _ = command(*words, *changes)
    assert code == 0
    assert "Changed in every run: schedule.epochs=1, data.labels=40." in shown
    (run,) = (out / "runs").iterdir()
    recipe = Run.open(run).read_recipe()
    assert (recipe.schedule.epochs, recipe.data.labels) == (1, 40)
    (folder,) = out.glob("small-*")  # apart from the table of the experiment as it is
    table = (folder / "table.md").read_text()
    assert f"{shlex.join(map(str, (*words, *changes)))}`" in table
    assert "| both | more | – | not run |" in table
    assert "Changed in every run: schedule.epochs=1" in (folder / "bars.svg").read_text()

    command(*words[:-1], "both", *changes)
    assert "not run" not in (folder / "table.md").read_text()  # both parts are in one table

    code, _, shown = command(*words, "--set", "seed=1")
    assert (code, shown) == (
        2,
        "error: --set seed: the seeds are 0, 1, …; say how many by --seeds\n",
    )


def _no_data(*_: object) -> None:
    raise UserError("no data")


def test_a_run_of_another_recipe_is_not_shown_for_this_one(small: Path, tmp_path: Path) -> None:
    request = Request(str(small), "cpu", seeds=1, out=tmp_path / "out", only="supervised")
    reproduce(request, Console(quiet=True))
    (run,) = (tmp_path / "out" / "runs").iterdir()
    recipe = run / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("momentum = 0.9", "momentum = 0.8"))
    with pytest.raises(UserError, match=f"{run.name} holds a run of another recipe"):
        reproduce(dataclasses.replace(request, only="both"), Console(quiet=True))
    assert list((tmp_path / "out" / "runs").iterdir()) == [run]  # nothing was trained before


def test_missing_data_are_named_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.setenv("DUALSTUDENT_DATA", str(tmp_path / "data"))
    for proxy in ("http_proxy", "https_proxy"):  # refuses at once, like having no network
        monkeypatch.setenv(proxy, "http://127.0.0.1:9")
    code, _, shown = command("reproduce", "table2", "--out", tmp_path / "out")
    assert code == 2
    assert shown.startswith("error: cifar-100-binary.tar.gz is not in ")
    assert f"put it into {tmp_path / 'data' / 'cifar100'}" in shown
    assert shown.count("\n") == 1
    assert not (tmp_path / "out").exists()

    code, _, shown = command("reproduce", "domain-adaptation", "--out", tmp_path / "out")
    assert code == 2
    assert shown.count("usps.bz2 is not in ") == 1
    assert shown.count("train-images-idx3-ubyte.gz is not in ") == 1
