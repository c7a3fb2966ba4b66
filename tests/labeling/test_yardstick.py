from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dualstudent import Run, load_trained
from dualstudent.data.prepare import DataSettings
from dualstudent.labeling import Yardstick, yardstick
from dualstudent.training.inference import Predictions, predict
from dualstudent.training.trainer import Trainer


@pytest.fixture
def trainer(small_run: Run) -> Trainer:
    return load_trained(small_run)


def said_of_the_test(trainer: Trainer) -> Predictions:
    everything = torch.arange(len(trainer.data.test_labels))
    seed, device = trainer.recipe.seed, trainer.fabric.device
    return Predictions.join(predict(trainer.method, trainer.data.test, everything, seed, device))


def with_truth(trainer: Trainer, truth: torch.Tensor) -> Trainer:
    trainer.data = replace(trainer.data, test_labels=truth)
    return trainer


def test_where_all_is_right_no_temperature_can_be_told(trainer: Trainer) -> None:
    said = said_of_the_test(trainer)
    found = Yardstick.measured(with_truth(trainer, said.probabilities.argmax(dim=1)), 0.95)
    assert found.temperature is None
    torch.testing.assert_close(found.trust(said), said.probabilities.double().amax(dim=1))
    assert found.threshold is not None
    believable = said.stable_for_all & said.agree
    assert found.threshold.believed == found.threshold.right == believable.sum()
    assert torch.equal(found.trusted(said), believable)
    assert 0 < believable.sum() < len(believable)
    trust, trusted = found.in_words()
    assert trust.endswith("all of 355 test images are right, too few to calibrate")
    right = int(believable.sum())
    bound = 100 * 0.05 ** (1 / right)
    assert (
        f"355 test images: {right} of {right} right, so with 95 % confidence about {bound:.1f} % "
        "or more; a model trained with these predictions must be measured on other images"
    ) in trusted


def test_where_all_is_wrong_nothing_is_trusted(trainer: Trainer) -> None:
    said = said_of_the_test(trainer)
    wrong = (said.probabilities.argmax(dim=1) + 1) % 10
    found = Yardstick.measured(with_truth(trainer, wrong), 0.95)
    assert found.threshold is None
    assert found.temperature is not None
    assert found.temperature > 1
    assert not found.trusted(said).any()
    assert found.in_words()[1] == (
        "trusted: nothing: on 355 test images there are no 20 or more that are stable for all "
        "students, agreed upon, and right in 95 % of the cases"
    )


def test_without_held_out_images_the_network_speaks_for_itself(trainer: Trainer) -> None:
    said = said_of_the_test(trainer)
    nothing = replace(trainer.data, test_labels=trainer.data.test_labels[:0])
    trainer.data = nothing
    found = Yardstick.measured(trainer, 0.95)
    assert found == Yardstick("nothing", 0, 0.95)
    assert not found.trusted(said).any()
    trust, trusted = found.in_words()
    assert "nothing to calibrate on" in trust
    assert "neither test nor validation images" in trusted


def test_what_it_trusts_of_its_own_images_is_what_it_counted(trainer: Trainer) -> None:
    """Threshold and trust are both after calibration; the less sure half is made wrong."""
    said = said_of_the_test(trainer)
    sure, predicted = said.probabilities.max(dim=1)
    believable = said.stable_for_all & said.agree
    unsure = believable & (sure < sure[believable].median())
    truth = torch.where(unsure, (predicted + 1) % 10, trainer.data.test_labels)
    found = Yardstick.measured(with_truth(trainer, truth), 0.9)
    assert found.temperature is not None
    assert abs(found.temperature - 1) > 0.1
    assert found.threshold is not None
    trusted = found.trusted(said)
    assert found.threshold.believed == trusted.sum() < believable.sum()
    assert found.threshold.right == (trusted & (predicted == truth)).sum()
    assert found.threshold.precision >= 0.9


def test_a_handful_of_right_answers_proves_nothing(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = said_of_the_test(trainer)
    with_truth(trainer, said.probabilities.argmax(dim=1))
    believable = int((said.stable_for_all & said.agree).sum())
    for fewest, enough in ((believable, True), (believable + 1, False)):
        monkeypatch.setattr(yardstick, "FEWEST", fewest)
        assert (Yardstick.measured(trainer, 0.95).threshold is not None) == enough


def test_labels_of_the_source_prove_nothing_about_the_target(trainer: Trainer) -> None:
    said = said_of_the_test(trainer)
    with_truth(trainer, said.probabilities.argmax(dim=1))
    data = DataSettings(path=Path("a"), target_path=Path("b"), validation=0.2)
    trainer.recipe = trainer.recipe.model_copy(update={"data": data})
    found = Yardstick.measured(trainer, 0.95)
    assert not found.trusted(said).any()
    assert "labels of the source prove nothing about the target" in found.in_words()[1]
