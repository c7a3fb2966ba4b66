"""An experiment as a user runs it: real processes, real digits."""

import contextlib
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dualstudent import Run
from dualstudent.experiments import cost
from dualstudent.experiments.cost import Pace
from tests.support.command import Command
from tests.support.experiments import write_small


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write_small(tmp_path)


def stamps(folder: Path) -> dict[str, int]:
    return {p.parent.name: p.stat().st_mtime_ns for p in folder.glob("runs/*/result.json")}


@pytest.mark.slow
def test_an_interrupted_experiment_continues_and_repeats_nothing(
    small: Path, tmp_path: Path, command: Command
) -> None:
    out = tmp_path / "out"
    words = ["reproduce", str(small), "--budget", "cpu", "--seeds", "2", "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-m", "dualstudent", *words], stderr=subprocess.PIPE, text=True
    )
    while not stamps(out) and process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.1)
    process.send_signal(signal.SIGTERM)
    _, message = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM, message
    assert f"continue with: dualstudent {' '.join(words)}" in " ".join(message.split())
    before = stamps(out)
    assert 0 < len(before) < 4
    assert not (out / "small").exists()

    code, shown, _ = command(*words)
    assert code == 0
    after = stamps(out)
    assert len(after) == 4
    assert {name: after[name] for name in before} == before
    table = (out / "small" / "table.md").read_text()
    assert "| supervised | more | 7.25 |" in table
    assert "two short epochs of small batches" in table
    assert f"`dualstudent {' '.join(words)}`" in table
    assert "two short epochs of small batches" in shown
    assert len((out / "small" / "table.csv").read_text().splitlines()) == 5
    page = (out / "small" / "index.html").read_text()
    assert "ICCV" not in page + table  # it is the user's own
    assert "of the paper" not in page + table
    assert "two short epochs of small batches" in page
    assert "<svg" in page
    assert (out / "small" / "bars.png").read_bytes().startswith(b"\x89PNG")
    assert "Made smaller: two short epochs" in (out / "small" / "bars.svg").read_text()


@pytest.mark.slow
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
    assert (code, shown.count("\n")) == (2, 1)
    assert "--seeds" in shown


def test_the_list_has_a_row_per_experiment_and_budget(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "measure_pace", lambda _: Pace(training=0.01, test=0.0))
    code, shown, _ = command("reproduce", "stable-samples", "--list")
    assert code == 0
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines()]
    full, cpu = (row for row in rows if len(row) == 6)
    assert (full[0], *full[2:]) == ("stable-samples", "full", "1", "294,000", "3 days")
    assert cpu[:3] == ["", "", "cpu"]


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
