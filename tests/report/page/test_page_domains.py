"""Both domains on the page of a run that adapts."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from dualstudent import Recipe, Run, Trainer, UserError, load_trained, resume
from dualstudent.batch import mark_domains
from dualstudent.recipes.reading import validate
from dualstudent.report.page.chart import COLORS
from dualstudent.report.page.domains import Dot, compare_domains
from dualstudent.report.page.run_data import collect_run_data
from dualstudent.runs import train
from dualstudent.training.adaptation import read_features
from dualstudent.training.verification import verify_run
from tests.support.recipes import small_recipe
from tests.support.runs import DiesAt, assert_equal_runs

ADAPTS = (
    "data.target=mnist-5k",
    "data.labels=all",
    "batch.size=512",
    "batch.labeled=128",
    "schedule.epochs=1",
    "network.batch_norm=by-domain",
)


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(small_recipe(*ADAPTS), tmp_path_factory.mktemp("adapted") / "run")


def test_the_source_is_normalized_by_its_own_statistics(adapted: Run) -> None:
    (shown,) = collect_run_data([adapted])
    assert shown.domains is not None
    assert shown.domains.looked_at == (1000, 1000)
    trainer = Trainer(small_recipe(*ADAPTS))
    data = trainer.data
    rows = data.labeled[torch.linspace(0, len(data.labeled) - 1, 1000).long()]
    network = load_trained(adapted).method.evaluated["student1"].eval()
    (images,) = data.train.make_views(rows, [None])
    with torch.no_grad():
        logits = network(mark_domains(images, torch.zeros(1000))).class_logits
    right = (logits.argmax(dim=1) == data.labels[rows]).float().mean().item()
    assert shown.domains.source_accuracy == pytest.approx(100 * right, abs=0.2)


def test_pictures_are_the_principal_components_of_both_domains() -> None:
    trainer = Trainer(small_recipe(*ADAPTS))
    domains = compare_domains(trainer)
    assert domains is not None
    before = domains.pictures[0].dots
    assert [dot.of_target for dot in before] == [False] * 250 + [True] * 250
    data = trainer.data
    some = torch.linspace(0, 999, 250).long()
    chosen = [
        each[torch.linspace(0, len(each) - 1, 1000).long()][some]
        for each in (data.labeled, data.unlabeled)
    ]
    (images,) = data.train.make_views(torch.cat(chosen), [None])
    check_components(before, images.flatten(1))


def check_components(dots: Sequence[Dot], vectors: Tensor) -> None:
    """Check that the dots are the first two principal components of the vectors."""
    centered = (vectors - vectors.mean(dim=0)).double().numpy()
    _, directions = np.linalg.eigh(np.cov(centered.T))
    for place, name in ((-1, "x"), (-2, "y")):
        expected = centered @ directions[:, place]
        found = np.array([getattr(dot, name) for dot in dots])
        assert abs(np.corrcoef(found, expected)[0, 1]) == pytest.approx(1, abs=1e-4)


def staged_recipe() -> Recipe:
    """An epoch on the labels of the source, and one of Dual Student on both domains."""
    table = small_recipe(*ADAPTS, "data.target_labels=500").model_dump(
        mode="json", exclude_none=True
    )
    supervised = {"name": "supervised", "students": 2}
    table["stages"] = [{"name": "source", "method": supervised}, {"name": "target"}]
    return validate(table, "of a test")


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(staged_recipe(), tmp_path_factory.mktemp("staged") / "run")


def test_the_picture_before_shows_the_network_that_the_last_stage_begins_with(staged: Run) -> None:
    trainer = Trainer(staged_recipe())
    while not trainer.enter_due_stage():
        trainer.advance()
    rows, features = read_features(staged.features_before)
    of_target = trainer.data.is_target[rows]  # type: ignore[index]
    assert of_target.tolist() == [False] * 250 + [True] * 250
    (images,) = trainer.data.train.make_views(rows, [None])
    network = trainer.method.students[0].eval()
    with torch.no_grad():
        expected = network(mark_domains(images, of_target.long())).features
    torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-5)
    (shown,) = collect_run_data([staged])
    assert shown.domains is not None
    before, after = shown.domains.pictures
    check_components(before.dots, features)
    assert [dot.style for dot in before.dots] == [dot.style for dot in after.dots]
    assert before.dots != after.dots
    assert "last stage" in before.shows


def test_known_labels_of_the_target_are_shown_and_compared(staged: Run) -> None:
    (shown,) = collect_run_data([staged])
    trainer = load_trained(staged)
    data = trainer.data
    labeled = data.labeled[data.is_target[data.labeled]]  # type: ignore[index]
    rows, _ = read_features(staged.features_before)
    assert shown.domains is not None
    (images,) = data.train.make_views(labeled, [None])
    with torch.no_grad():
        logits = trainer.method.evaluated["student1"].eval()(images).class_logits
    right = (logits.argmax(dim=1) == data.labels[labeled]).float().mean().item()
    assert shown.domains.labeled_targets == 500
    assert shown.domains.target_accuracy == pytest.approx(100 * right, abs=0.2)
    assert 0 < right < 1
    known = [place for place in range(250, 500) if data.labels[rows[place]] >= 0]
    assert len(known) > 10
    styles = [shown.domains.pictures[1].dots[place].style for place in known]
    assert styles == [f"c{data.labels[rows[place]] % COLORS}" for place in known]


@pytest.mark.slow
def test_a_run_that_is_killed_in_its_last_stage_keeps_the_same_features(
    staged: Run, tmp_path: Path
) -> None:
    last, expected = staged.read_metrics()[0]["step"], read_features(staged.features_before)
    with pytest.raises(RuntimeError, match="power cut"):
        train(staged_recipe(), tmp_path / "run", DiesAt(last + 2))
    run = Run(tmp_path / "run")
    assert all(map(torch.equal, read_features(run.features_before), expected))
    run.features_before.unlink()  # as if it had been killed a moment before
    assert_equal_runs(resume(run.folder), staged)
    assert all(map(torch.equal, read_features(run.features_before), expected))


def test_a_run_of_an_earlier_version_has_kept_no_features(staged: Run, tmp_path: Path) -> None:
    run = Run(Path(shutil.copytree(staged.folder, tmp_path / "run")))
    run.features_before.unlink()
    (shown,) = collect_run_data([run])
    assert shown.domains is not None
    assert shown.domains.pictures[0].title == "Before: the samples"
    assert {check.outcome for check in verify_run(run, with_data=False)} == {"ok"}


def test_damaged_features_are_found(staged: Run, tmp_path: Path) -> None:
    run = Run(Path(shutil.copytree(staged.folder, tmp_path / "run")))
    content = bytearray(run.features_before.read_bytes())
    content[len(content) // 2] ^= 1
    run.features_before.write_bytes(content)
    outcomes = {check.what: check.outcome for check in verify_run(run, with_data=False)}
    assert [what for what, found in outcomes.items() if found != "ok"] == [run.features_before.name]
    assert outcomes[run.features_before.name] == "error"
    with pytest.raises(UserError, match=run.features_before.name):
        collect_run_data([run])


def test_a_class_that_is_never_predicted_is_lost() -> None:
    trainer = Trainer(small_recipe(*ADAPTS))
    with torch.no_grad():
        trainer.method.students[0].get_submodule("heads.classify").bias[3] = -1e4  # type: ignore
    domains = compare_domains(trainer)
    assert domains is not None
    assert "3" in domains.lost


def test_one_domain_has_no_such_section(small_run: Run, adapted: Run) -> None:
    (one,) = collect_run_data([small_run])
    assert one.domains is None
    assert 'id="domains"' not in small_run.page.read_text("utf-8")
    page = adapted.page.read_text("utf-8")
    assert 'id="domains"' in page
    assert "nan" not in page.split('id="domains"')[1].split("</section>")[0].lower()
