import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from dualstudent import UserError, resume, train
from dualstudent.methods import MeanTeacher, MeanTeacherSettings
from dualstudent.signals import Interrupted
from dualstudent.training.trainer import Trainer
from tests.support.recipes import small_recipe
from tests.support.runs import RaisesSignalAt, assert_equal_runs
from tests.support.students import Recorder, small_batch, small_network


def with_another_teacher() -> MeanTeacher:
    """A student and a teacher that are far apart."""
    method = MeanTeacher([small_network(0)])
    method.teacher.load_state_dict(small_network(1).state_dict())
    return method


def test_consistency_is_between_the_student_on_view_1_and_the_teacher_on_view_2() -> None:
    batch = small_batch()
    student, teacher = small_network(0), small_network(1)
    followed = student(batch.views[0]).consistency_logits.softmax(dim=1).detach().numpy()
    target = teacher(batch.views[1]).class_logits.softmax(dim=1).detach().numpy()
    (loss,) = with_another_teacher().losses(batch, ramp=0.5)
    expected = 100 * 0.5 * ((followed.astype(float) - target) ** 2).sum() / (3 * 16)
    assert loss.terms["consistency"].item() == pytest.approx(expected, rel=1e-5)


def test_the_student_learns_from_the_consistency_and_the_teacher_does_not() -> None:
    method, batch = with_another_teacher(), small_batch()
    teacher = Recorder(method.teacher)
    method.teacher = teacher
    (loss,) = method.losses(batch, ramp=1.0)
    assert teacher.shown == [(batch.views[1], False)]
    torch.autograd.backward(loss.terms["consistency"])
    trunk = method.students[0].get_submodule("trunk")
    assert all(p.grad is not None for p in trunk.parameters())
    assert max(float(p.grad.abs().max()) for p in trunk.parameters() if p.grad is not None) > 0
    for p in method.teacher.parameters():
        assert p.grad is None
        assert not p.requires_grad


def test_the_teacher_is_the_average_of_the_student_after_real_steps() -> None:
    trainer = Trainer(small_recipe("method.name=mean-teacher", "method.decay=0.7"))
    method = trainer.method
    assert isinstance(method, MeanTeacher)
    method.train()
    student = method.students[0]
    expected = {name: p.detach().double().numpy() for name, p in student.named_parameters()}
    for step in range(6):
        trainer.take_step(step)
        alpha = min(1 - 1 / (step + 2), 0.7)
        for name, p in student.named_parameters():
            current = p.detach().double().numpy()
            expected[name] = alpha * expected[name] + (1 - alpha) * current
    for name, p in method.teacher.named_parameters():
        np.testing.assert_allclose(p.numpy(), expected[name], rtol=1e-4, atol=1e-6)


def test_the_teacher_begins_as_a_copy_of_the_student() -> None:
    method = MeanTeacher([small_network()])
    student, teacher = method.students[0].state_dict(), method.teacher.state_dict()
    assert student.keys() == teacher.keys()
    for name, value in student.items():
        assert torch.equal(value, teacher[name])
        assert value.data_ptr() != teacher[name].data_ptr()


def test_the_teacher_has_batch_norm_statistics_of_its_own() -> None:
    """Made by its own passes over view 2 in training mode; the average leaves them alone."""
    method, batch = with_another_teacher(), small_batch()
    alone = copy.deepcopy(method.teacher)
    for step in range(2):
        method.losses(batch, ramp=1.0)
        alone(batch.views[1])
        method.after_step(step)
        alone.load_state_dict(dict(method.teacher.named_parameters()), strict=False)
    assert all(module.training for module in method.teacher.modules())
    for name, buffer in alone.named_buffers():
        assert torch.equal(buffer, method.teacher.get_buffer(name)), name
    norms = [m for m in method.teacher.modules() if isinstance(m, nn.BatchNorm2d)]
    assert [int(norm.num_batches_tracked or 0) for norm in norms] == [2, 2, 2]


def test_both_networks_are_evaluated_and_the_teacher_is_the_headline() -> None:
    method = MeanTeacher([small_network()])
    assert method.evaluated == {"student": method.students[0], "teacher": method.teacher}
    assert method.headline == ["teacher"]


@pytest.mark.parametrize("decay", [-0.1, 1.0, 1.5])
def test_a_decay_outside_its_range_is_refused(decay: float) -> None:
    with pytest.raises(UserError, match=rf"method\.decay = {decay}: "):
        small_recipe("method.name=mean-teacher", f"method.decay={decay}")
    assert MeanTeacherSettings(decay=0).decay == 0


@pytest.mark.parametrize("step", [13, 47])
def test_a_stopped_run_continues_bit_for_bit(step: int, tmp_path: Path) -> None:
    recipe = small_recipe("method.name=mean-teacher")
    whole = train(recipe, tmp_path / "whole")
    result = whole.read_result()
    assert set(result["networks"]) == {"student", "teacher"}
    assert result["error"] == result["networks"]["teacher"]["error"]
    with pytest.raises(Interrupted):
        train(recipe, tmp_path / "run", RaisesSignalAt(step))
    assert_equal_runs(resume(tmp_path / "run"), whole)
