import pytest
import torch

from dualstudent.data.transforms.policy import Draw
from dualstudent.generators import make_generator
from dualstudent.training.evaluation import CHUNK
from dualstudent.training.inference import Answers, answers
from dualstudent.training.model import load_trained
from dualstudent.training.run import Run
from dualstudent.training.training import Training


@pytest.fixture(scope="module")
def run(small_run: Run) -> Run:
    return small_run


def asked(training: Training, indices: torch.Tensor) -> Answers:
    seed, device = training.recipe.seed, training.fabric.device
    return Answers.joined(answers(training.method, training.data.test, indices, seed, device))


@pytest.mark.learns
def test_on_the_test_set_they_are_the_answers_behind_the_figures_of_the_run(run: Run) -> None:
    training = load_trained(run)
    labels = training.data.test_labels

    found = asked(training, torch.arange(len(labels))).beside(labels)

    figures = run.read_result()["networks"][training.method.exported]
    assert 100 * (~found.correct).sum().item() / len(labels) == pytest.approx(figures["error"])
    assert 100 * found.stable.sum().item() / len(labels) == pytest.approx(figures["stable_share"])
    assert 0 < figures["error"] < 100  # else anything would do


@pytest.mark.learns
def test_agreement_and_stability_are_of_all_students(run: Run) -> None:
    training = load_trained(run)
    one, other = training.method.evaluated.values()
    everything = torch.arange(len(training.data.test_labels))
    by_one = asked(training, everything)
    with torch.no_grad():
        one.load_state_dict(other.state_dict())
    by_other = asked(training, everything)

    same = by_one.probabilities.argmax(1) == by_other.probabilities.argmax(1)
    assert torch.equal(by_one.agree, same)
    said = torch.stack([each.probabilities.argmax(1) for each in (by_one, by_other)], dim=1)
    assert torch.equal(by_one.labels, said)
    assert not same.all()
    assert torch.equal(by_one.stable_for_all, by_one.stable & by_other.stable)
    assert by_other.agree.all()


@pytest.mark.learns
def test_instability_is_how_far_the_perturbed_view_moves_the_exported_network(run: Run) -> None:
    training = load_trained(run)
    first = torch.arange(CHUNK)
    draw = Draw("weak", make_generator(training.recipe.seed, "test view", 0))
    network = training.method.evaluated["student1"].eval()
    with torch.no_grad():
        clean, perturbed = (
            network(view).class_logits.softmax(dim=1)
            for view in training.data.test.views(first, [None, draw])
        )

    found = asked(training, first)

    torch.testing.assert_close(found.instability, (clean - perturbed).square().mean(dim=1))
    assert found.instability.max() > 0.01  # 0.08 on both CPUs


def test_only_what_was_asked_about_is_answered_and_in_that_order(run: Run) -> None:
    training = load_trained(run)
    everything = asked(training, torch.arange(len(training.data.test_labels)))
    some = torch.tensor([300, 7, 41])

    found = asked(training, some)

    assert torch.equal(found.indices, some)
    torch.testing.assert_close(found.probabilities, everything.probabilities[some])
