"""The features that are kept when the last stage of two domains begins."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor

from dualstudent import Callback, PreparedData, Recipe, Run, Trainer, UserError, prepare_arrays
from dualstudent.data.broken import BrokenSamples
from dualstudent.data.features import FeatureSamples
from dualstudent.data.transforms.policy import Draw
from dualstudent.recipes.reading import validate
from dualstudent.runs import train
from dualstudent.training.adaptation import keep_features, read_features
from tests.support.disk import full_disk
from tests.support.together import make_recipe

SOURCE = 100


def two_domains() -> PreparedData:
    """Vectors of 200 digits: the first half is the source with labels, the other the target."""
    X, y = load_digits(return_X_y=True)
    is_source = np.arange(200) < SOURCE
    known, domain = np.where(is_source, y[:200], -1), np.where(is_source, 1, -1)
    return prepare_arrays(X[:200], known, sample_domain=domain)


def staged_recipe() -> Recipe:
    """Two epochs on the labels of the source, and two on both domains."""
    table = make_recipe("dual-student").model_dump(mode="json", exclude_none=True)
    supervised = {"name": "supervised", "students": 2}
    table["stages"] = [{"name": "source", "method": supervised}, {"name": "target"}]
    return validate(table, "of a test")


class BlocksFile(Callback):
    """Puts a folder where a run wants to write the features."""

    def on_run(self, run: Run, recipe: Recipe) -> None:
        run.features_before.mkdir()


def test_features_that_cannot_be_written_do_not_change_the_training(tmp_path: Path) -> None:
    whole = train(staged_recipe(), tmp_path / "whole", data=two_domains())
    assert len(read_features(whole.features_before)[0]) == 200
    with pytest.warns(UserWarning, match=r"features-before\.safetensors was not written"):
        run = train(staged_recipe(), tmp_path / "run", BlocksFile(), two_domains())
    assert run.metrics.read_text() == whole.metrics.read_text()
    assert run.page.is_file()


def test_features_that_do_not_fit_on_the_disk_leave_nothing(tmp_path: Path) -> None:
    trainer = Trainer(staged_recipe(), two_domains())
    with full_disk(1000), pytest.warns(UserWarning, match="features was not written"):
        keep_features(trainer, tmp_path / "features")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [UserError, RuntimeError])
def test_a_network_that_fails_is_a_warning(
    error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error("out of\nmemory")

    trainer = Trainer(staged_recipe(), two_domains())
    monkeypatch.setattr(type(trainer.method.students[0]), "forward", fail)
    with pytest.warns(UserWarning, match=r"out of\\nmemory$"):
        keep_features(trainer, tmp_path / "features")


def test_nothing_is_kept_if_no_label_is_of_the_source(tmp_path: Path) -> None:
    trainer = Trainer(staged_recipe(), two_domains())
    trainer.data = replace(trainer.data, labeled=torch.arange(SOURCE, 200))
    keep_features(trainer, tmp_path / "features")
    assert not list(tmp_path.iterdir())


def test_nothing_is_kept_if_no_sample_of_a_domain_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = FeatureSamples.make_raw_views

    def read(
        samples: FeatureSamples, indices: Tensor, draws: Sequence[Draw | None]
    ) -> list[Tensor]:
        broken = (indices >= SOURCE).nonzero()[:, 0].tolist()
        if broken:
            raise BrokenSamples(dict.fromkeys(broken, "no image"))
        return whole(samples, indices, draws)

    trainer = Trainer(staged_recipe(), two_domains())
    monkeypatch.setattr(FeatureSamples, "make_raw_views", read)
    keep_features(trainer, tmp_path / "features")
    assert not list(tmp_path.iterdir())
