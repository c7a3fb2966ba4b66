"""Both domains on the page of a run that adapts."""

import numpy as np
import pytest
import torch

from dualstudent import Run, Trainer, load_trained
from dualstudent.batch import mark_domains
from dualstudent.report.page.domains import compare_domains
from dualstudent.report.page.run_data import collect_run_data
from dualstudent.runs import train
from tests.support.recipes import small_recipe

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
    before = domains.pictures["Before: the samples"]
    assert [dot.of_target for dot in before] == [False] * 250 + [True] * 250
    data = trainer.data
    some = torch.linspace(0, 999, 250).long()
    chosen = [
        each[torch.linspace(0, len(each) - 1, 1000).long()][some]
        for each in (data.labeled, data.unlabeled)
    ]
    (images,) = data.train.make_views(torch.cat(chosen), [None])
    vectors = images.flatten(1).double().numpy()
    centered = vectors - vectors.mean(axis=0)
    _, directions = np.linalg.eigh(np.cov(centered.T))
    for place, name in ((-1, "x"), (-2, "y")):
        expected = centered @ directions[:, place]
        found = np.array([getattr(dot, name) for dot in before])
        assert abs(np.corrcoef(found, expected)[0, 1]) == pytest.approx(1, abs=1e-4)


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
