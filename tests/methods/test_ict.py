from typing import Any

import numpy as np
import pytest
import torch

from dualstudent.batch import Batch
from dualstudent.generators import seeded_rng
from dualstudent.methods import ICT, ICTSettings
from dualstudent.mixing import draw_shares
from tests.support.linear_student import Array, LinearSoftmax, probabilities
from tests.support.students import reached_parts, small_batch, small_network

LABELS = [-1, -1, -1, -1, 0, 2, 1]


def ict(**settings: Any) -> ICT:
    """The teacher is not the student."""
    method = ICT([LinearSoftmax(0)], ICTSettings(**settings))
    method.teacher.load_state_dict(LinearSoftmax(1).state_dict())
    return method


def points(labels: list[int] = LABELS, **fields: Any) -> Batch:
    with seeded_rng("points"):
        view = torch.randn(len(labels), 5, dtype=torch.float64)
    return Batch((view,), torch.tensor(labels), **fields)


def draw(seed: int, alpha: float, labeled: int, unlabeled: int) -> list[Any]:
    """What is drawn with this seed: shares and partners of labeled and unlabeled samples."""
    torch.manual_seed(seed)
    drawn: list[Any] = []
    for count in (labeled, unlabeled):
        drawn.append(draw_shares(1, alpha).item())
        drawn.append(torch.randperm(count).numpy())
    return drawn


def expect(x: Array, u: Array, labels: list[int], drawn: list[Any]) -> dict[str, float]:
    student, teacher = LinearSoftmax(0).w, LinearSoftmax(1).w
    share, order, share_u, order_u = drawn
    y = np.eye(3)[labels]
    mixed = probabilities((share * x + (1 - share) * x[order]) @ student.T)
    target = share * y + (1 - share) * y[order]
    followed = probabilities((share_u * u + (1 - share_u) * u[order_u]) @ student.T)
    logits = u @ teacher.T
    guide = probabilities(share_u * logits + (1 - share_u) * logits[order_u])
    return {
        "classification": float(-(target * np.log(mixed)).sum(axis=1).mean()),
        "consistency": float(100 * ((followed - guide) ** 2).mean()),
    }


def found(method: ICT, batch: Batch, seed: int, ramp: float = 1.0) -> dict[str, float]:
    torch.manual_seed(seed)
    (loss,) = method.losses(batch, ramp)
    return {name: term.item() for name, term in loss.terms.items()}


@pytest.mark.parametrize("alpha", [0.3, 1.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_mixtures_get_the_mixture_of_the_teachers_logits(alpha: float, seed: int) -> None:
    batch = points()
    view = batch.views[0].numpy()
    expected = expect(view[4:], view[:4], [0, 2, 1], draw(seed, alpha, 3, 4))
    assert found(ict(mixup_alpha=alpha), batch, seed) == pytest.approx(expected, rel=1e-5)


def test_if_all_samples_are_labeled_they_are_mixed_in_both_terms() -> None:
    labels = [0, 2, 1, 1]
    batch = points(labels, unlabeled=torch.ones(4, dtype=torch.bool))
    view = batch.views[0].numpy()
    expected = expect(view, view, labels, draw(0, 1.0, 4, 4))
    assert found(ict(), batch, seed=0) == pytest.approx(expected, rel=1e-5)


def test_the_ramp_weighs_consistency_only() -> None:
    full, half = (found(ict(), points(), seed=0, ramp=ramp) for ramp in (1.0, 0.5))
    assert half["classification"] == full["classification"]
    assert half["consistency"] == pytest.approx(full["consistency"] / 2, rel=1e-12)


def test_student_learns_by_its_class_head_and_the_teacher_by_the_average() -> None:
    student = small_network()
    method = ICT([student], ICTSettings(decay=0.75))
    before = [p.clone() for p in method.teacher.parameters()]
    (loss,) = method.losses(small_batch(), ramp=1.0)
    torch.autograd.backward(loss.total)
    assert reached_parts(student) == {"trunk", "class head"}
    assert all(p.grad is None for p in method.teacher.parameters())
    with torch.no_grad():
        for p in student.parameters():
            p.add_(1.0)
    method.after_step(100)
    for old, now in zip(before, method.teacher.parameters(), strict=True):
        torch.testing.assert_close(now, old + 0.25, rtol=0, atol=1e-6)


def test_the_teacher_is_the_result() -> None:
    method = ict()
    assert method.headline == ["teacher"]
    assert method.evaluated["teacher"] is method.teacher
