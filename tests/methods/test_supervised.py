from math import log

import pytest
import torch
from torch import Tensor, nn

from dualstudent import Trainer, UserError
from dualstudent.batch import Batch, Views
from dualstudent.methods import Supervised, SupervisedSettings
from dualstudent.prediction import Prediction
from tests.support.linear_student import LinearSoftmax, linear_batch, probabilities
from tests.support.recipes import small_recipe


class Echo(nn.Module):
    """Returns its input as class logits; its consistency head must not be used."""

    def forward(self, logits: Tensor) -> Prediction:
        return Prediction(logits, torch.full_like(logits, torch.nan), logits)


def batch_of(logits: Tensor, labels: list[int]) -> Batch:
    nothing_to_see = torch.full_like(logits, torch.nan)
    known = torch.tensor(labels)
    return Batch((logits, nothing_to_see), known, known < 0, torch.arange(len(labels)))


def test_loss_is_the_cross_entropy_of_the_first_view() -> None:
    probabilities = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]])
    (loss,) = Supervised([Echo()]).losses(batch_of(probabilities.log(), [1, 2]), ramp=0.0)
    expected = -(log(0.25) + log(0.7)) / 2
    assert list(loss.terms) == ["classification"]
    assert loss.total.item() == pytest.approx(expected, rel=1e-6)


def test_student_learns_the_labels() -> None:
    logits = torch.zeros(2, 2, requires_grad=True)
    (loss,) = Supervised([Echo()]).losses(batch_of(logits, [0, 1]), ramp=1.0)
    (gradient,) = torch.autograd.grad(loss.total, logits)
    assert gradient.tolist() == [[-0.25, 0.25], [0.25, -0.25]]


def test_it_asks_for_labeled_samples_in_one_view_which_can_be_strong() -> None:
    assert Supervised([Echo()]).views == Views(labeled=("weak",), unlabeled=())
    strong = Supervised([Echo()], SupervisedSettings(view="strong"))
    assert strong.views == Views(labeled=("strong",), unlabeled=())


def test_strong_views_must_be_defined() -> None:
    with pytest.raises(UserError, match="learns from strong views"):
        Trainer(small_recipe("method.name=supervised", "method.view=strong"))


@pytest.mark.parametrize("view", ["weak", "strong"])
def test_it_is_trained_on_the_views_that_are_set(view: str) -> None:
    """Weak views are the images themselves here, and strong ones are darker or brighter."""
    weak = ["transforms.weak.translate=0", "transforms.weak.noise=0"]
    method = ["method.name=supervised", f"method.view={view}"]
    trainer = Trainer(small_recipe(*weak, "transforms.strong.jitter=[1, 0, 0, 0]", *method))
    seen: list[Batch] = []
    trainer.method.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    trainer.take_step(0)
    (batch,) = seen
    (clean,) = trainer.data.train.make_views(batch.indices, [None])
    changed = (batch.views[0] != clean).flatten(1).any(dim=1)
    assert changed.all() if view == "strong" else not changed.any()


def test_it_trains_one_student_unless_told_otherwise() -> None:
    with pytest.raises(ValueError, match="1 student"):
        Supervised([Echo(), Echo()])


def test_each_of_several_students_learns_the_labels_by_itself() -> None:
    students, batch = [LinearSoftmax(0), LinearSoftmax(1)], linear_batch([2, 0, 1])
    several = Supervised(students, SupervisedSettings(students=2)).losses(batch, ramp=1.0)
    for student, loss in zip(students, several, strict=True):
        p = probabilities(batch.views[0].numpy() @ student.w.T)
        expected = -(log(p[0, 2]) + log(p[1, 0]) + log(p[2, 1])) / 3
        assert loss.total.item() == pytest.approx(expected, rel=1e-9)
        gradients = torch.autograd.grad(
            loss.total, [each.weight for each in students], allow_unused=True
        )
        reached = [gradient is not None for gradient in gradients]
        assert reached == [each is student for each in students]
