import pytest
import torch

from dualstudent.data.transforms.policy import Draw
from dualstudent.generators import make_generator
from dualstudent.training.inference import CHUNK, Predictions, predict
from dualstudent.training.model import load_trained
from dualstudent.training.run import Run
from dualstudent.training.trainer import Trainer


@pytest.fixture(scope="module")
def run(small_run: Run) -> Run:
    return small_run


def asked(trainer: Trainer, indices: torch.Tensor) -> Predictions:
    seed, device = trainer.recipe.seed, trainer.fabric.device
    return Predictions.join(predict(trainer.method, trainer.data.test, indices, seed, device))


@pytest.mark.learns
def test_predictions_on_the_test_set_give_the_figures_of_the_run(run: Run) -> None:
    trainer = load_trained(run)
    labels = trainer.data.test_labels

    found = asked(trainer, torch.arange(len(labels))).add_truth(labels)

    figures = run.read_result()["networks"][trainer.method.exported]
    assert 100 * (~found.correct).sum().item() / len(labels) == pytest.approx(figures["error"])
    assert 100 * found.stable.sum().item() / len(labels) == pytest.approx(figures["stable_share"])
    assert 0 < figures["error"] < 100  # so that the comparison means something


@pytest.mark.learns
def test_agreement_and_stability_are_of_all_students(run: Run) -> None:
    trainer = load_trained(run)
    one, other = trainer.method.evaluated.values()
    everything = torch.arange(len(trainer.data.test_labels))
    by_one = asked(trainer, everything)
    with torch.no_grad():
        one.load_state_dict(other.state_dict())
    by_other = asked(trainer, everything)

    same = by_one.probabilities.argmax(1) == by_other.probabilities.argmax(1)
    assert torch.equal(by_one.agree, same)
    said = torch.stack([each.probabilities.argmax(1) for each in (by_one, by_other)], dim=1)
    assert torch.equal(by_one.labels, said)
    assert not same.all()
    assert torch.equal(by_one.stable_for_all, by_one.stable & by_other.stable)
    assert by_other.agree.all()


@pytest.mark.learns
def test_instability_is_that_of_the_exported_network(run: Run) -> None:
    trainer = load_trained(run)
    first = torch.arange(CHUNK)
    draw = Draw("weak", make_generator(trainer.recipe.seed, "test view", 0))
    network = trainer.method.evaluated["student1"].eval()
    with torch.no_grad():
        clean, perturbed = (
            network(view).class_logits.softmax(dim=1)
            for view in trainer.data.test.make_views(first, [None, draw])
        )

    found = asked(trainer, first)

    torch.testing.assert_close(found.instability, (clean - perturbed).square().mean(dim=1))
    assert found.instability.max() > 0.01  # 0.08 on both CPUs


def test_predictions_follow_the_order_of_the_indices(run: Run) -> None:
    trainer = load_trained(run)
    everything = asked(trainer, torch.arange(len(trainer.data.test_labels)))
    some = torch.tensor([300, 7, 41])

    found = asked(trainer, some)

    assert torch.equal(found.indices, some)
    torch.testing.assert_close(found.probabilities, everything.probabilities[some])
