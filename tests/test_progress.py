"""What the bar of ``train`` and of the estimator shows, and where."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from dualstudent import Interrupted, ProgressBar, train
from dualstudent import progress as module
from tests.support.recipes import small_recipe
from tests.support.runs import RaisesSignalAt


def test_a_terminal_shows_a_bar_with_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Console(file=io.StringIO(), force_terminal=True, width=120)
    monkeypatch.setattr(module, "Console", lambda **_: screen)
    run = train(small_recipe(), tmp_path / "mine", ProgressBar())
    shown = screen.file.getvalue()  # type: ignore[attr-defined]
    errors = [figures["error"] for figures in run.read_metrics()[-1]["test"].values()]
    assert "mine" in shown
    assert "58/58" in shown
    assert f"error {errors[0]:.1f} {errors[1]:.1f} %" in shown


def test_a_file_gets_a_line_and_a_stopped_run_leaves_no_bar(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(small_recipe(), tmp_path / "whole", ProgressBar("digits"))
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("digits: 58/58 steps error ")
    bar = ProgressBar()
    with pytest.raises(Interrupted):
        train(small_recipe(), tmp_path / "stopped", [bar, RaisesSignalAt(40)])
    train(small_recipe(), tmp_path / "again", bar)  # the same bar can be used again
