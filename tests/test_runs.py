"""The report page at the end of a run."""

from pathlib import Path
from shutil import copytree

import pytest

from dualstudent import (
    Run,
    UserError,
    resume,
    train,
    write_report,
)
from tests.support.feature_vectors import MLP, vectors
from tests.support.html_page import Page
from tests.support.recipes import small_recipe


def test_feature_vectors_have_everything_but_pictures(tmp_path: Path) -> None:
    data = vectors()
    run = train(MLP, tmp_path / "run", data=data)
    page = Page(run.page.read_text("utf-8"))
    assert not page.of("img")
    assert "The samples are not images." in page.texts["p"]
    assert "Which predictions to trust" in page.texts["h2"]
    assert any("Of the 200 test samples" in text for text in page.texts["p"])

    written = run.page.read_bytes()
    with pytest.raises(UserError, match="handed over from Python"):
        write_report([run])
    assert run.page.read_bytes() == written
    assert write_report([run], tmp_path / "again.html", [data]).read_bytes() == written


def test_a_run_without_test_says_so(tmp_path: Path) -> None:
    run = train(MLP, tmp_path / "run", data=vectors(tested=False))
    page = Page(run.page.read_text("utf-8"))
    assert any(text.startswith("This run was not evaluated") for text in page.texts["p"])
    assert page.texts["h2"] == ["Learning curves", "Recipe"]


def test_a_page_that_cannot_be_drawn_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("dualstudent.report.page.page.render_page")
    with pytest.warns(UserWarning, match=r"run/report\.html was not drawn: name 'render_page'"):
        run = train(small_recipe("schedule.epochs=1"), tmp_path / "run")
    assert run.read_result()["epochs"] == 1
    assert not list(run.folder.glob("report*"))

    monkeypatch.undo()
    assert resume(run.folder).page.is_file()  # what is missing is drawn


def test_an_existing_page_of_a_finished_run_is_kept(small_run: Run, tmp_path: Path) -> None:
    run = Run(copytree(small_run.folder, tmp_path / "run"))
    run.page.write_text("notes of mine")
    resume(run.folder)
    assert run.page.read_text() == "notes of mine"
