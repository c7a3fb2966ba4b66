from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dualstudent import Run, load_trained
from dualstudent.data.prepare import DataSettings
from dualstudent.labeling import TrustRule, trust
from dualstudent.training.inference import Predictions, predict
from dualstudent.training.trainer import Trainer

pytestmark = pytest.mark.learns


@pytest.fixture
def trainer(small_run: Run) -> Trainer:
    return load_trained(small_run)


def predict_test_part(trainer: Trainer) -> Predictions:
    everything = torch.arange(len(trainer.data.test_labels))
    seed, device = trainer.recipe.seed, trainer.fabric.device
    return Predictions.join(predict(trainer.method, trainer.data.test, everything, seed, device))


def with_truth(trainer: Trainer, truth: torch.Tensor) -> Trainer:
    trainer.data = replace(trainer.data, test_labels=truth)
    return trainer


def test_where_all_is_right_no_temperature_can_be_told(trainer: Trainer) -> None:
    predictions = predict_test_part(trainer)
    found = TrustRule.fit(with_truth(trainer, predictions.probabilities.argmax(dim=1)), 0.95)
    assert found.temperature is None
    torch.testing.assert_close(
        found.compute_trust(predictions), predictions.probabilities.double().amax(dim=1)
    )
    believable = predictions.stable_for_all & predictions.agree
    assert found.threshold is not None  # needs 20 believable samples; 52 on both CPUs
    assert found.threshold.accepted == found.threshold.correct == believable.sum()
    assert torch.equal(found.is_trusted(predictions), believable)
    assert 0 < believable.sum() < len(believable)
    how, which = found.describe()
    assert "355 test images" in how
    right = int(believable.sum())
    bound = 100 * 0.05 ** (1 / right)
    for value in ("355 test images", f"{right} of {right}", f"{bound:.1f} %", "95 %"):
        assert value in which


def test_where_all_is_wrong_nothing_is_trusted(trainer: Trainer) -> None:
    predictions = predict_test_part(trainer)
    wrong = (predictions.probabilities.argmax(dim=1) + 1) % 10
    found = TrustRule.fit(with_truth(trainer, wrong), 0.95)
    assert found.threshold is None
    assert found.temperature is not None
    assert found.temperature > 1  # 100, the largest allowed, on both CPUs
    assert not found.is_trusted(predictions).any()
    for value in ("trusted: nothing", "355 test images", "20 or more", "95 %"):
        assert value in found.describe()[1]


def test_without_held_out_images_the_network_speaks_for_itself(trainer: Trainer) -> None:
    predictions = predict_test_part(trainer)
    nothing = replace(trainer.data, test_labels=trainer.data.test_labels[:0])
    trainer.data = nothing
    found = TrustRule.fit(trainer, 0.95)
    assert found == TrustRule("nothing", 0, 0.95)
    assert not found.is_trusted(predictions).any()
    how, which = found.describe()
    assert "not calibrated" in how
    assert which.startswith("trusted: nothing")


def test_what_it_trusts_of_its_own_images_is_what_it_counted(trainer: Trainer) -> None:
    """Threshold and trust are both after calibration; of what is stable
    and agreed upon the surer half is made right and the other half wrong."""
    predictions = predict_test_part(trainer)
    sure, predicted = predictions.probabilities.max(dim=1)
    believable = predictions.stable_for_all & predictions.agree
    truth = trainer.data.test_labels.clone()
    made = torch.where(sure < sure[believable].median(), (predicted + 1) % 10, predicted)
    truth[believable] = made[believable]
    found = TrustRule.fit(with_truth(trainer, truth), 0.9)
    assert found.temperature is not None
    assert abs(found.temperature - 1) > 0.02  # else it would not matter; 0.16 on both CPUs
    assert found.threshold is not None  # needs 20 samples; accepts 30 on both CPUs
    trusted = found.is_trusted(predictions)
    assert found.threshold.accepted == trusted.sum() < believable.sum()
    assert found.threshold.correct == (trusted & (predicted == truth)).sum()
    assert found.threshold.precision >= 0.9


def test_a_handful_of_right_answers_proves_nothing(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictions = predict_test_part(trainer)
    with_truth(trainer, predictions.probabilities.argmax(dim=1))
    believable = int((predictions.stable_for_all & predictions.agree).sum())
    for fewest, enough in ((believable, True), (believable + 1, False)):
        monkeypatch.setattr(trust, "MIN_ACCEPTED", fewest)
        assert (TrustRule.fit(trainer, 0.95).threshold is not None) == enough


def test_labels_of_the_source_prove_nothing_about_the_target(trainer: Trainer) -> None:
    predictions = predict_test_part(trainer)
    with_truth(trainer, predictions.probabilities.argmax(dim=1))
    data = DataSettings(path=Path("a"), target_path=Path("b"), validation=0.2)
    trainer.recipe = trainer.recipe.model_copy(update={"data": data})
    found = TrustRule.fit(trainer, 0.95)
    assert not found.is_trusted(predictions).any()
    assert found.describe()[1].startswith("trusted: nothing")
