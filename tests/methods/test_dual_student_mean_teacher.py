from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from dualstudent import UserError, load_recipe, resume, train
from dualstudent.methods import (
    DualStudent,
    DualStudentMeanTeacher,
    DualStudentMeanTeacherSettings,
    DualStudentSettings,
)
from dualstudent.networks import DigitsCNN
from dualstudent.signals import Interrupted
from tests.support.fixed_student import FixedStudent, fixed_batch
from tests.support.recipes import small_recipe
from tests.support.runs import RaisesSignalAt, assert_equal_runs
from tests.support.students import Recorder, reached_parts, small_batch, small_network


@pytest.fixture
def students() -> list[DigitsCNN]:
    return [small_network(0), small_network(1)]


def test_only_consistency_follows_the_teacher() -> None:
    # The first is unsure of both views, the second sure of its own, which is view 2.
    fixed = [FixedStudent((0.6, 0.5), (0.55, 0.3)), FixedStudent((0.7, 0.4), (0.9, 0.95))]
    # Their teachers say the contrary; only the class head on the other view counts.
    teachers = [FixedStudent((0.99, 0.98), (0.97, 0.96)), FixedStudent((0.2, 0.93), (0.92, 0.91))]
    batch = fixed_batch([-1, 0])
    plain = DualStudent(fixed).losses(batch, ramp=0.5)
    method = DualStudentMeanTeacher(fixed)
    method.teachers = nn.ModuleList(teachers)
    first, second = method.losses(batch, ramp=0.5)
    assert first.terms["consistency"].item() == pytest.approx(
        0.5 * 10 * (0.5 - 0.97) ** 2, rel=1e-12
    )
    assert second.terms["consistency"].item() == pytest.approx(
        0.5 * 10 * (0.95 - 0.2) ** 2, rel=1e-12
    )
    # The stable one is the second, by what the students themselves say, and it guides by that.
    assert first.terms["stabilization"].item() == pytest.approx(
        0.5 * 100 * (0.5 - 0.9) ** 2 / 2, rel=1e-12
    )
    assert second.terms["stabilization"].item() == 0
    for loss, expected in zip((first, second), plain, strict=True):
        for name in ("classification", "logit_distance", "stabilization"):
            assert loss.terms[name].item() == expected.terms[name].item()


def test_the_first_step_is_that_of_dual_student(students: list[DigitsCNN]) -> None:
    """Teachers begin as copies, so their first answer is the student's own."""
    settings = DualStudentMeanTeacherSettings(confidence_threshold=0.0)
    losses = DualStudentMeanTeacher(students, settings).losses(small_batch(), ramp=1.0)
    dual = DualStudent(students, DualStudentSettings(confidence_threshold=0.0))
    for loss, expected in zip(losses, dual.losses(small_batch(), ramp=1.0), strict=True):
        actual = {name: term.item() for name, term in loss.terms.items()}
        assert actual == {name: term.item() for name, term in expected.terms.items()}


def test_teachers_see_the_other_view_of_their_student_and_carry_no_gradient(
    students: list[DigitsCNN],
) -> None:
    method, batch = DualStudentMeanTeacher(students), small_batch()
    teachers = [Recorder(teacher) for teacher in method.teachers]
    method.teachers = nn.ModuleList(teachers)
    losses = method.losses(batch, ramp=1.0)
    for teacher, other_view in zip(teachers, (batch.views[1], batch.views[0]), strict=True):
        ((shown, carries_gradient),) = teacher.shown
        assert shown is other_view
        assert not carries_gradient
    torch.autograd.backward(losses[0].total + losses[1].total)
    for parameter in method.teachers.parameters():
        assert not parameter.requires_grad
        assert parameter.grad is None


@pytest.mark.parametrize("own", [0, 1])
@pytest.mark.parametrize("term", ["consistency", "stabilization"])
def test_following_moves_trunk_and_consistency_head_of_the_follower(
    students: list[DigitsCNN], term: str, own: int
) -> None:
    settings = DualStudentMeanTeacherSettings(confidence_threshold=0.0)
    losses = DualStudentMeanTeacher(students, settings).losses(small_batch(), ramp=1.0)
    torch.autograd.backward(losses[own].terms[term])
    assert reached_parts(students[own]) == {"trunk", "consistency head"}
    assert reached_parts(students[1 - own]) == set()


def test_each_teacher_is_the_average_of_its_own_student(students: list[DigitsCNN]) -> None:
    method = DualStudentMeanTeacher(students, DualStudentMeanTeacherSettings(decay=0.7))

    def weights(
        networks: nn.ModuleList,
    ) -> list[list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]]:
        return [[p.detach().numpy().astype(np.float64) for p in n.parameters()] for n in networks]

    averages = weights(method.students)
    for step, decay in enumerate([1 / 2, 2 / 3, 0.7, 0.7, 0.7]):
        with torch.no_grad():
            for parameter in method.students.parameters():
                parameter.add_(torch.randn_like(parameter))
        method.after_step(step)
        averages = [
            [decay * old + (1 - decay) * new for old, new in zip(average, student, strict=True)]
            for average, student in zip(averages, weights(method.students), strict=True)
        ]
        for average, teacher in zip(averages, weights(method.teachers), strict=True):
            for expected, actual in zip(average, teacher, strict=True):
                np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_teachers_keep_batch_norm_statistics_of_their_own(students: list[DigitsCNN]) -> None:
    method = DualStudentMeanTeacher(students)
    method.losses(small_batch(), ramp=1.0)
    method.after_step(0)

    def passes(network: nn.Module) -> set[int]:
        norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
        return {int(norm.num_batches_tracked or 0) for norm in norms}

    assert [passes(student) for student in method.students] == [{2}, {2}]
    assert [passes(teacher) for teacher in method.teachers] == [{1}, {1}]
    assert all(module.training for module in method.modules())


def test_students_and_teachers_are_evaluated_and_students_are_the_headline(
    students: list[DigitsCNN],
) -> None:
    method = DualStudentMeanTeacher(students)
    assert list(method.evaluated) == ["student1", "student2", "teacher1", "teacher2"]
    assert list(method.evaluated.values()) == [*students, *method.teachers]
    assert method.headline == ["student1", "student2"]


def test_the_defaults_are_those_of_dual_student_and_the_decay() -> None:
    ours, dual = DualStudentMeanTeacherSettings().model_dump(), DualStudentSettings().model_dump()
    assert ours == dual | {"name": "dual-student+mean-teacher", "decay": 0.97}


@pytest.mark.parametrize("decay", ["1.0", "-0.1", "nan"])
def test_a_decay_out_of_range_is_refused_in_one_line(decay: str) -> None:
    changes = ["method.name=dual-student+mean-teacher", f"method.decay={decay}"]
    with pytest.raises(UserError, match=rf"method\.decay = {decay}: ") as error:
        load_recipe("digits", changes)
    assert "\n" not in str(error.value)


def test_a_stopped_run_continues_bit_for_bit(tmp_path: Path) -> None:
    recipe = small_recipe(
        "method.name=dual-student+mean-teacher",
        "method.confidence_threshold=0.5",
        "schedule.epochs=1",
    )
    whole = train(recipe, tmp_path / "whole")
    with pytest.raises(Interrupted):
        train(recipe, tmp_path / "stopped", RaisesSignalAt(11))
    assert_equal_runs(resume(tmp_path / "stopped"), whole)
