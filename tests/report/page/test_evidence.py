"""Real runs: what may stand side by side, and what is refused."""

import json
from pathlib import Path
from shutil import copytree

import pytest

from dualstudent import Run, UserError
from dualstudent.report.page.evidence import gather
from dualstudent.runs import train
from tests.support.recipes import small_recipe
from tests.test_runs import MLP, vectors


@pytest.fixture(scope="module")
def supervised(tmp_path_factory: pytest.TempPathFactory) -> Run:
    recipe = small_recipe("method.name=supervised", "data.labels=20", "schedule.epochs=1", "seed=3")
    return train(recipe, tmp_path_factory.mktemp("supervised") / "small")


def test_other_labels_methods_and_seeds_may_stand_side_by_side(
    small_run: Run, supervised: Run
) -> None:
    one, other = gather([small_run, supervised])
    assert (one.labeled, other.labeled) == (50, 20)
    assert (one.taught > 0, other.taught) == (True, 0)
    assert one.name != other.name  # both folders are called small
    for evidence, run in ((one, small_run), (other, supervised)):
        figures = run.read_result()["networks"]["student" if run is supervised else "student1"]
        verdict = evidence.verdict
        assert verdict is not None
        wrong = verdict.samples - verdict.matrix.diagonal().sum().item()
        assert 100 * wrong / verdict.samples == pytest.approx(figures["error"])
        assert 100 * verdict.stable.coverage == pytest.approx(figures["stable_share"])
        assert evidence.figures == figures
        assert evidence.result == run.read_result()


def test_another_test_set_is_refused(small_run: Run, tmp_path: Path) -> None:
    fewer = 'data.classes=["1", "2"]'
    recipe = small_recipe(fewer, "schedule.epochs=1", "data.labels=20")
    other = train(recipe, tmp_path / "two")
    samples = r"\(355 of 1 × 8 × 8 in 10 classes; 71 of 1 × 8 × 8 in 2 classes\)"
    with pytest.raises(UserError, match=f"cannot be compared: .* {samples}"):
        gather([small_run, other])


def test_a_run_that_never_finished_is_refused_before_anything_is_looked_at(
    small_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("dualstudent.report.page.evidence.load_trained")
    unfinished = tmp_path / "run"
    unfinished.mkdir()
    for name in ("run.json", "recipe.toml"):
        (unfinished / name).write_bytes((small_run.folder / name).read_bytes())
    with pytest.raises(UserError, match="has not finished; continue it with"):
        gather([small_run, Run.open(unfinished)])


def test_a_run_that_was_not_evaluated_stands_beside_no_other(
    small_run: Run, tmp_path: Path
) -> None:
    data = vectors(tested=False)
    blind = train(MLP, tmp_path / "blind", data=data)
    with pytest.raises(
        UserError, match=r"small and .*blind cannot .*: \S*/blind was not evaluated;"
    ):
        gather([small_run, blind], [None, data])


def test_a_damaged_run_is_refused_before_anything_is_looked_at(
    small_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("dualstudent.report.page.evidence.load_trained")
    run = Run(copytree(small_run.folder, tmp_path / "run"))
    run.result.write_text(json.dumps(run.read_result() | {"networks": {}}))
    with pytest.raises(UserError, match=r"result\.json: its networks are not .* of metrics\.jsonl"):
        gather([run])
    run.metrics.write_text("")
    with pytest.raises(UserError, match=r"metrics\.jsonl: holds no epoch; bring it back"):
        gather([run])
