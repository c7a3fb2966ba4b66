from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from dualstudent import (
    DualStudent,
    FeaturePerturbation,
    Recipe,
    Transform,
    Transforms,
    UserError,
    prepare_arrays,
    train,
)
from dualstudent.batch import Views
from dualstudent.data.prepare import DataSettings
from dualstudent.data.prepared import PreparedData
from dualstudent.recipes.reading import validate
from dualstudent.runs import resume
from dualstudent.training.callbacks import Callback
from dualstudent.training.checkpoint import read_tensors
from dualstudent.training.checks import warn_of_unreachable_thresholds
from dualstudent.training.distributed import Team
from dualstudent.training.model import evaluate_run, load_trained
from dualstudent.training.trainer import LossNotFinite, Trainer
from tests.support.together import make_recipe, make_vectors

MLP: dict[str, Any] = {"name": "mlp", "hidden": [32]}


def recipe(learning_rate: float = 0.1, network: dict[str, Any] = MLP) -> Recipe:
    """A recipe without data; for feature vectors by default."""
    return validate(
        {
            "data": {},
            "network": network,
            "method": {"name": "dual-student", "classification_average": "labeled"},
            "batch": {"size": 64, "labeled": 16},
            "optimizer": {"learning_rate": learning_rate},
            "schedule": {"epochs": 3, "rampup_epochs": 1},
        },
        "of a test",
    )


def digits(with_test: bool = True) -> PreparedData:
    X, y = load_digits(return_X_y=True)
    known = np.where(np.arange(500) < 100, y[:500], -1)
    return prepare_arrays(
        X[:500],
        known,
        test=(X[1500:], y[1500:]) if with_test else None,
        perturbation=FeaturePerturbation(noise=0.3),
    )


@pytest.mark.learns
def test_training_in_memory_equals_the_training_of_a_run(tmp_path: Path) -> None:
    run = train(recipe(), tmp_path / "run", data=digits())
    trainer = Trainer(recipe(), digits())
    history = []
    while not trainer.done:
        record = trainer.advance()
        if record is not None:
            history.append(record)
    for written, kept in zip(run.read_metrics(), history, strict=True):
        assert {key: written[key] for key in kept} == kept
    weights, _ = read_tensors(run.model)
    for name, tensor in trainer.method.students[1].state_dict().items():
        assert torch.equal(weights[f"student2.{name}"], tensor)
    assert run.read_result()["error"] < 60  # 27.8 on both CPUs, chance is 90


def test_a_run_keeps_what_its_vectors_went_through_and_can_be_tested_again(tmp_path: Path) -> None:
    data = digits()
    run = train(recipe(), tmp_path / "run", data=data)
    weights, notes = read_tensors(run.model)
    X, _ = load_digits(return_X_y=True)
    np.testing.assert_allclose(weights["preprocessing.mean"], X[:500].mean(axis=0))
    assert notes["classes"] == [str(digit) for digit in range(10)]
    assert evaluate_run(run, data) == run.read_result()["networks"]
    assert not run.split.exists()


def test_a_run_on_data_from_python_needs_the_same_data_to_resume(tmp_path: Path) -> None:
    class Unplugged(Callback):
        def on_step(self, step: int) -> None:
            if step == 15:
                raise RuntimeError("unplugged")

    whole = train(recipe(), tmp_path / "whole", data=digits())
    with pytest.raises(RuntimeError, match="unplugged"):
        train(recipe(), tmp_path / "run", Unplugged(), digits())
    with pytest.raises(UserError, match=r"data\.source"):
        resume(tmp_path / "run")
    with pytest.raises(UserError, match="not those the run began with"):
        resume(tmp_path / "run", data=digits(with_test=False))
    resumed = resume(tmp_path / "run", data=digits())
    assert resumed.metrics.read_text() == whole.metrics.read_text()
    with pytest.raises(UserError, match="handed over from Python"):
        load_trained(resumed)
    with pytest.raises(UserError, match="not those the run began with"):
        load_trained(resumed, digits(with_test=False))


def test_a_run_forgets_the_data_that_its_recipe_names_but_it_never_saw(tmp_path: Path) -> None:
    named = recipe().model_copy(update={"data": DataSettings(source="digits-8x8")})
    run = train(named, tmp_path / "run", data=digits())
    assert run.read_recipe().data.source is None
    with pytest.raises(UserError, match="handed over from Python"):
        evaluate_run(run)


def test_a_run_without_a_test_set_trains_and_says_that_nothing_was_tested(tmp_path: Path) -> None:
    data = digits(with_test=False)
    run = train(recipe(), tmp_path / "run", data=data)
    result = run.read_result()
    assert (result["error"], result["networks"]) == (None, {})
    with pytest.raises(UserError, match=r"test .*validation"):
        evaluate_run(run, data)


def test_a_training_that_diverges_says_so() -> None:
    trainer = Trainer(recipe(learning_rate=1e30), digits())

    def to_the_end() -> None:
        while not trainer.done:
            trainer.advance()

    with pytest.raises(LossNotFinite, match=r"optimizer\.learning_rate .*1e\+30"):
        to_the_end()


STRONG = Transforms(strong=Transform(noise=0.1))
STRONG_VECTORS = FeaturePerturbation(noise=0.1)


@pytest.mark.parametrize(
    ("shape", "network", "views"),
    [
        pytest.param((8, 8), {"name": "digits-cnn"}, {"transforms": STRONG}, id="images"),
        pytest.param((64,), MLP, {"strong_perturbation": STRONG_VECTORS}, id="vectors"),
    ],
)
def test_strong_views_that_nothing_would_perturb_are_refused(
    shape: tuple[int, ...],
    network: dict[str, Any],
    views: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, y = load_digits(return_X_y=True)
    images, known = X.reshape(-1, *shape) / 16, np.where(np.arange(len(y)) < 100, y, -1)
    asked = recipe(network=network)
    Trainer(asked, prepare_arrays(images, known))
    monkeypatch.setattr(DualStudent, "views", Views(("weak", "strong"), ("weak", "strong")))
    with pytest.raises(UserError, match=r"'dual-student' learns from strong views.*transforms"):
        Trainer(asked, prepare_arrays(images, known))
    Trainer(asked, prepare_arrays(images, known, **views))


@pytest.mark.parametrize(
    ("method", "settings", "threshold"),
    [
        ("fixmatch", ["method.label_smoothing=0.1"], "pseudo_label_threshold = 0.95"),
        ("flexmatch", ["method.label_smoothing=0.1"], "pseudo_label_threshold = 0.95"),
        ("self-ensembling", ["method.label_smoothing=0.1"], "teacher_threshold = 0.9684"),
        (
            "multiple-student",
            ["method.label_smoothing=0.1", "method.confidence_threshold=0.94"],
            "confidence_threshold = 0.94",
        ),
    ],
)
def test_a_threshold_that_smoothed_labels_do_not_let_students_reach_is_a_warning(
    method: str, settings: list[str], threshold: str
) -> None:
    with pytest.warns(
        UserWarning, match=rf"^method\.{threshold} .*label_smoothing = 0\.1 "
    ) as said:
        warn_of_unreachable_thresholds(make_recipe(method, *settings), 9)
    (warning,) = said
    assert " 0.9111;" in str(warning.message)  # 0.9 + 0.1 / 9


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("fixmatch", []),
        ("fixmatch", ["method.label_smoothing=0.05"]),  # they ask for 0.956
        ("fixmatch", ["method.label_smoothing=0.1", "method.pseudo_label_threshold=0.9"]),
        ("dual-student", ["method.label_smoothing=0.1"]),
        ("freematch", ["method.label_smoothing=0.5"]),  # its threshold follows its confidence
        ("adamatch", ["method.label_smoothing=0.5"]),
        ("pi", ["method.label_smoothing=0.5"]),  # its threshold is that of reports
    ],
)
def test_a_threshold_that_can_be_reached_is_used_without_a_word(
    method: str, settings: list[str]
) -> None:
    warn_of_unreachable_thresholds(make_recipe(method, *settings), 9)


def test_a_run_warns_of_it_once_where_it_begins(tmp_path: Path) -> None:
    recipe, data = make_recipe("fixmatch", "method.label_smoothing=0.1"), make_vectors()
    Trainer(recipe, data)  # as to measure something
    with pytest.warns(UserWarning, match=r"pseudo_label_threshold = 0\.95") as said:
        run = train(recipe, tmp_path / "run", data=data)
    assert len(said) == 1
    resume(run.folder, data=data)
    load_trained(run, data)


def test_processes_that_follow_do_not_warn_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(*_: object) -> None:
        raise InterruptedError("the run is begun")

    monkeypatch.setattr(Team, "leads", False)
    monkeypatch.setattr(Team, "lead", begin)
    recipe = make_recipe("fixmatch", "method.label_smoothing=0.1")
    with pytest.raises(InterruptedError, match="begun"):  # and no warning, which is an error here
        train(recipe, tmp_path / "run", data=make_vectors())
