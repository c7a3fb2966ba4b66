"""An experiment as a user runs it: real processes, real digits."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from dualstudent import UserError
from dualstudent.experiments.reproduce import Request, reproduce
from tests.experiments.small import SMALL


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "dualstudent.cli", "reproduce", *arguments]


def stamps(folder: Path) -> dict[str, int]:
    return {p.parent.name: p.stat().st_mtime_ns for p in folder.glob("runs/*/result.json")}


def test_an_interrupted_experiment_continues_and_repeats_nothing(
    small: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    words = [str(small), "--budget", "cpu", "--seeds", "2", "--out", str(out)]
    process = subprocess.Popen(command(*words), stderr=subprocess.PIPE, text=True)
    while not stamps(out) and process.poll() is None:
        os.sched_yield()
    process.send_signal(signal.SIGTERM)
    _, message = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM, message
    assert f"continue with: dualstudent reproduce {' '.join(words)}" in " ".join(message.split())
    before = stamps(out)
    assert 0 < len(before) < 4
    assert not (out / "small").exists()

    again = subprocess.run(command(*words), capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    after = stamps(out)
    assert len(after) == 4
    assert {name: after[name] for name in before} == before
    table = (out / "small" / "table.md").read_text()
    assert "| supervised | more | 7.25 |" in table
    assert "two short epochs of small batches" in table
    assert f"`dualstudent reproduce {' '.join(words)}`" in table
    assert "two short epochs of small batches" in " ".join(again.stdout.split())
    assert len((out / "small" / "table.csv").read_text().splitlines()) == 5


def test_a_part_is_run_alone_and_the_table_shows_what_is_there(small: Path, tmp_path: Path) -> None:
    request = Request(str(small), "cpu", seeds=1, out=tmp_path / "out", only="supervised")
    folder = reproduce(request, Console(quiet=True))
    lines = (folder / "table.md").read_text().splitlines()
    assert "not run" not in lines[2]
    assert lines[3].startswith("| both | more | – | not run |")
    whole = Request(str(small), "cpu", seeds=1, out=tmp_path / "out")
    before = stamps(tmp_path / "out")
    reproduce(whole, Console(quiet=True))
    assert stamps(tmp_path / "out").items() > before.items()
    assert "not run" not in (folder / "table.md").read_text()


def test_missing_data_are_named_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUALSTUDENT_DATA", str(tmp_path / "data"))
    for proxy in ("http_proxy", "https_proxy"):  # refuses at once, like having no network
        monkeypatch.setenv(proxy, "http://127.0.0.1:9")
    finished = subprocess.run(
        command("table2", "--out", str(tmp_path / "out")),
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 2
    assert finished.stderr.startswith("error: cifar-100-binary.tar.gz is not in ")
    assert f"put it into {tmp_path / 'data' / 'cifar100'}" in finished.stderr
    assert finished.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_finished_runs_need_no_data(small: Path, tmp_path: Path) -> None:
    text = SMALL.replace('source = "digits-8x8"', 'folder = "nowhere", source = "digits-8x8"')
    small.write_text(text)
    request = Request(str(small), "cpu", seeds=1, out=tmp_path / "out", only="supervised")
    reproduce(request, Console(quiet=True))
    # As if they were data that have to be there, and are not any more.
    monkey = pytest.MonkeyPatch()
    monkey.setattr("dualstudent.experiments.reproduce.prepare", _no_data)
    reproduce(request, Console(quiet=True))
    with pytest.raises(UserError, match="no data"):
        reproduce(Request(str(small), "cpu", 2, tmp_path / "out"), Console(quiet=True))
    monkey.undo()


def _no_data(*_: object) -> None:
    raise UserError("no data")
