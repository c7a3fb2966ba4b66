"""Real runs: what may stand side by side, and what is refused."""

from pathlib import Path
from shutil import copytree

import pytest

from dualstudent import Run, UserError
from dualstudent.report.page.run_data import collect_run_data
from dualstudent.runs import train
from tests.support.feature_vectors import MLP, vectors
from tests.support.recipes import small_recipe


@pytest.fixture(scope="module")
def supervised(tmp_path_factory: pytest.TempPathFactory) -> Run:
    recipe = small_recipe("method.name=supervised", "data.labels=20", "schedule.epochs=1", "seed=3")
    return train(recipe, tmp_path_factory.mktemp("supervised") / "small")


def test_other_labels_methods_and_seeds_may_stand_side_by_side(
    small_run: Run, supervised: Run
) -> None:
    one, other = collect_run_data([small_run, supervised])
    assert (one.labeled, other.labeled) == (50, 20)
    assert (one.unlabeled > 0, other.unlabeled) == (True, 0)
    assert one.name != other.name  # both folders are called small
    for run_data, run in ((one, small_run), (other, supervised)):
        figures = run.read_result()["networks"]["student" if run is supervised else "student1"]
        evaluation = run_data.evaluation
        assert evaluation is not None
        wrong = evaluation.samples - evaluation.matrix.diagonal().sum().item()
        assert 100 * wrong / evaluation.samples == pytest.approx(figures["error"])
        assert 100 * evaluation.stable.coverage == pytest.approx(figures["stable_share"])
        assert run_data.figures == figures
        assert run_data.result == run.read_result()


def test_another_test_set_is_refused(small_run: Run, tmp_path: Path) -> None:
    fewer = 'data.classes=["1", "2"]'
    recipe = small_recipe(fewer, "schedule.epochs=1", "data.labels=20")
    other = train(recipe, tmp_path / "two")
    samples = r"\(355 of 1 × 8 × 8 in 10 classes; 71 of 1 × 8 × 8 in 2 classes\)"
    with pytest.raises(UserError, match=samples):
        collect_run_data([small_run, other])


def test_a_run_that_never_finished_is_refused_before_anything_is_looked_at(
    small_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("dualstudent.report.page.run_data.load_trained")
    unfinished = tmp_path / "run"
    unfinished.mkdir()
    for name in ("run.json", "recipe.toml"):
        (unfinished / name).write_bytes((small_run.folder / name).read_bytes())
    with pytest.raises(UserError, match="dualstudent resume"):
        collect_run_data([small_run, Run.open(unfinished)])


def test_a_run_that_was_not_evaluated_stands_beside_no_other(
    small_run: Run, tmp_path: Path
) -> None:
    data = vectors(tested=False)
    blind = train(MLP, tmp_path / "blind", data=data)
    with pytest.raises(UserError, match="/blind was not evaluated"):
        collect_run_data([small_run, blind], [None, data])


def test_a_damaged_run_is_refused_before_anything_is_looked_at(
    small_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("dualstudent.report.page.run_data.load_trained")
    run = Run(copytree(small_run.folder, tmp_path / "run"))
    nothing = {"error": None, "chosen_on_test": {"error": None}, "networks": {}}
    run.write_result(run.read_result() | nothing)
    with pytest.raises(UserError, match=r"result\.json.* metrics\.jsonl"):
        collect_run_data([run])
    run.metrics.write_text("")
    with pytest.raises(UserError, match=r"metrics\.jsonl"):
        collect_run_data([run])
