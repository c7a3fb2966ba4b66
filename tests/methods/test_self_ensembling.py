import numpy as np
import pytest
import torch
from torch import Tensor

from dualstudent import losses
from dualstudent.batch import Batch
from dualstudent.methods import SelfEnsembling, SelfEnsemblingSettings
from tests.support.linear_student import LinearSoftmax, linear_batch, probabilities
from tests.support.students import reached_parts, small_batch, small_network

LABELS = [-1, -1, -1, -1, 0, 2, 1]


def two_views() -> Batch:
    points = linear_batch(LABELS)
    second = points.views[0][:4] + 0.1
    return Batch((points.views[0], second), points.labels)


@pytest.mark.parametrize("threshold", [0.0, 0.6, 0.999])
def test_terms_by_their_definition(threshold: float) -> None:
    settings = SelfEnsemblingSettings(teacher_threshold=threshold, balance_weight=0.5)
    method = SelfEnsembling([LinearSoftmax(0)], settings)
    student, teacher = method.students[0], method.teacher
    assert isinstance(student, LinearSoftmax)
    assert isinstance(teacher, LinearSoftmax)
    with torch.no_grad():  # a teacher of its own
        teacher.weight.copy_(2 * LinearSoftmax(1).weight)
    batch = two_views()
    terms = method.losses(batch, ramp=0.0)[0].terms  # there is no ramp
    p = probabilities(batch.views[0].numpy() @ student.w.T)
    q = probabilities(batch.views[1].numpy() @ teacher.w.T)
    confident = q.max(axis=1) > threshold
    if threshold == 0.6:  # some of them, so that the test can tell
        assert 0 < confident.sum() < 4
    expected = 3 * sum(((p[i] - q[i]) ** 2).mean() for i in range(4) if confident[i]) / 4
    assert terms["consistency"].item() == pytest.approx(expected, rel=1e-6)
    cross = -np.log([p[4, 0], p[5, 2], p[6, 1]]).mean()
    assert terms["classification"].item() == pytest.approx(cross, rel=1e-6)
    mean = p[:4].mean(axis=0)
    bce = -(np.log(mean) / 3 + np.log(1 - mean) * 2 / 3).sum()
    assert terms["balance"].item() == pytest.approx(1.5 * confident.mean() * bce, rel=1e-6)


def test_the_teacher_follows_the_student_and_gets_no_gradient() -> None:
    batch = small_batch()
    method = SelfEnsembling([small_network()], SelfEnsemblingSettings(teacher_threshold=0.0))
    torch.autograd.backward(method.losses(batch, ramp=1.0)[0].terms["consistency"])
    assert reached_parts(method.students[0]) == {"trunk", "class head"}  # type: ignore[arg-type]
    assert all(each.grad is None for each in method.teacher.parameters())
    with torch.no_grad():
        for each in method.students[0].parameters():
            each.add_(1)
    before = [each.clone() for each in method.teacher.parameters()]
    method.after_step(1000)
    for now, then in zip(method.teacher.parameters(), before, strict=True):
        torch.testing.assert_close(now, then + 0.01)
    assert method.headline == ["teacher"]


def logits_of(p: Tensor) -> Tensor:
    return p.log().requires_grad_()


def test_confident_distance_ignores_unsure_targets() -> None:
    p = logits_of(torch.tensor([[0.5, 0.5], [0.2, 0.8]]))
    target = torch.tensor([[0.95, 0.05], [0.9, 0.1]])
    loss = losses.confident_distance(p, target, threshold=0.9)
    torch.autograd.backward(loss)
    assert loss.item() == pytest.approx(0.45**2 / 2)
    assert p.grad is not None
    assert p.grad[0].any()
    assert not p.grad[1].any()


def test_class_balance_is_smallest_for_equally_frequent_classes() -> None:
    even, uneven = torch.zeros(2, 4), torch.tensor([[9.0, 0, 0, 0]] * 2)
    assert losses.class_balance(even).item() == pytest.approx(
        -(np.log(0.25) + 3 * np.log(0.75)), rel=1e-6
    )
    assert losses.class_balance(uneven) > losses.class_balance(even)
    certain = losses.class_balance(torch.tensor([[1e4, 0.0]]))
    assert certain.isfinite()
