"""A loop of one's own that forgets a hook must not learn nothing without a word."""

import warnings
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from dualstudent import (
    CS,
    VAT,
    Batch,
    DualStudent,
    MeanTeacher,
    MeanTeacherFastSWA,
    Method,
    Prediction,
    StudentLoss,
    Supervised,
    SupervisedSettings,
    Task,
    TemporalEnsembling,
    UserError,
    as_student,
)
from tests.support.operations import Operations
from tests.support.students import begun, small_batch, small_network

TASK = Task(9, samples=16, classes=3, image_shape=(1, 4, 4), value_range=1, unlabeled=12)


def take_step(method: Method, optimizer: torch.optim.Optimizer, hook: bool = True) -> None:
    (loss,) = method.losses(small_batch(), ramp=1.0)
    optimizer.zero_grad()
    torch.autograd.backward(loss.total)
    optimizer.step()
    if hook:
        method.after_step(0)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("how", ["foreach", "fused", "neither"])
def test_a_teacher_that_is_never_moved_is_noticed_after_a_few_steps(
    kind: type[torch.optim.Optimizer], how: str
) -> None:
    method = deepcopy(MeanTeacher([small_network()]))
    options: dict[str, Any] = {"lr": 0.1} if how == "neither" else {"lr": 0.1, how: True}
    optimizer = kind(method.students.parameters(), **options)
    for _ in range(12):
        take_step(method, optimizer)
    for _ in range(10):
        take_step(method, optimizer, hook=False)
    with pytest.raises(UserError, match=r"mean-teacher.*10 steps.*after_step"):
        take_step(method, optimizer)


def test_losses_may_be_asked_for_as_often_as_one_likes_between_steps() -> None:
    method = MeanTeacher([small_network()])
    optimizer = torch.optim.SGD(method.students.parameters(), lr=0.1)
    for _ in range(12):
        for _ in range(2):  # accumulates gradients
            torch.autograd.backward(method.losses(small_batch(), ramp=1.0)[0].total)
        optimizer.step()
        with torch.no_grad():  # only looks
            method.losses(small_batch(), ramp=1.0)
        method.after_step(0)


def compute_gradient(method: Method) -> torch.Tensor:
    method.zero_grad()
    (loss,) = method.losses(small_batch(), ramp=1.0)
    torch.autograd.backward(loss.total)
    return loss.total


@torch.no_grad()
def step_where_it_is_steep(method: Method, optimizer: torch.optim.Optimizer) -> None:
    """A step of SAM: by the gradient at a place that is worse."""
    with torch.enable_grad():
        compute_gradient(method)
    moves = {p: 0.01 * p.grad for p in method.students.parameters() if p.grad is not None}
    for parameter, move in moves.items():
        parameter.add_(move)
    with torch.enable_grad():
        compute_gradient(method)
    for parameter, move in moves.items():
        parameter.sub_(move)
    optimizer.step()


def test_loops_that_change_weights_in_other_ways_are_not_refused() -> None:
    method = MeanTeacher([small_network()])
    sgd = torch.optim.SGD(method.students.parameters(), lr=0.01)
    others = torch.optim.SGD(small_network(1).parameters(), lr=0.01)
    newton: Any = torch.optim.LBFGS(method.students.parameters(), lr=0.01, max_iter=5)
    for _ in range(9):
        sgd.step()  # before the method is used: a warm-up of one's own
    for _ in range(6):
        step_where_it_is_steep(method, sgd)
        method.after_step(0)
        others.step()
        newton.step(lambda: compute_gradient(method).item())
        method.after_step(0)
        state = {name: value + 0.01 for name, value in method.students.state_dict().items()}
        method.students.load_state_dict(state)
    for _ in range(3):
        for _ in range(9):  # a teacher that moves less often
            take_step(method, sgd, hook=False)
        take_step(method, sgd)


def test_the_watch_costs_no_operation_on_tensors() -> None:
    method, batch = begun(MeanTeacherFastSWA([small_network()])), small_batch()
    method.after_epoch(0, [])
    with Operations() as noted, method.hooks.expect_hooks(method, batch):
        pass
    assert noted.seen == []


def test_methods_without_hooks_need_no_calls() -> None:
    student = small_network()
    method = Supervised([student])
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    for _ in range(9):
        take_step(method, optimizer, hook=False)


def test_a_memory_that_was_never_made_is_noticed_at_once() -> None:
    method = VAT([small_network()])
    with pytest.raises(UserError, match=r"vat.*begin"):
        method.losses(small_batch(), ramp=1.0)


def test_who_only_looks_need_not_begin() -> None:
    method = BeginsAndCounts([small_network()])
    assert method.eval().losses(small_batch(), ramp=1.0)
    with pytest.raises(UserError, match="begin"):
        method.train().losses(small_batch(), ramp=1.0)


def test_epochs_that_never_end_are_noticed_and_long_ones_are_not() -> None:
    method = BeginsAndCounts([small_network()])
    method.begin(task=TASK)
    with warnings.catch_warnings(action="error"):
        for _ in range(4):
            method.losses(small_batch(), ramp=1.0)
    with pytest.warns(UserWarning, match=r"3 passes.*after_epoch"):
        method.losses(small_batch(), ramp=1.0)
    for _ in range(96):  # once is enough
        method.losses(small_batch(), ramp=1.0)
    with pytest.raises(UserError, match=r"100 passes.*after_epoch"):
        method.losses(small_batch(), ramp=1.0)
    method.after_epoch(0, [])
    for _ in range(210):
        method.losses(small_batch(), ramp=1.0)


class CountsEpochs(Supervised):
    """A method of one's own that has only one hook, and asks its base for the losses."""

    Settings = SupervisedSettings
    epochs = 0

    def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
        return super().losses(batch, ramp)

    def after_epoch(self, epoch: int, batches: object) -> None:
        self.epochs += 1


class BeginsAndCounts(CountsEpochs):
    def begin(self, task: Task) -> None:
        pass


def test_hooks_of_own_methods_are_watched_as_far_as_they_need_it() -> None:
    method = CountsEpochs([small_network()])
    method.losses(small_batch(), ramp=1.0)  # has no begin of its own
    method.begin(TASK)
    for _ in range(4):  # would be too many if the base counted them, too
        method.losses(small_batch(), ramp=1.0)
    method.after_epoch(0, [])
    assert method.epochs == 1


class Plain(nn.Module):
    def __init__(self, *outputs: int) -> None:
        super().__init__()
        self.outputs, self.weight = outputs, nn.Parameter(torch.rand(1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.weight * torch.ones(len(images), *self.outputs)


class TwoHeads(Plain):
    def forward(self, images: torch.Tensor) -> Prediction:  # type: ignore[override]
        logits = super().forward(images)
        return Prediction(logits, logits[:, :2], logits)


@pytest.mark.parametrize("kind", [DualStudent, CS])
def test_plain_tensors_are_refused_in_one_line(kind: type[Method]) -> None:
    with pytest.raises(UserError, match=r"Plain returns a plain tensor \(16, 3\).*as_student") as e:
        kind([Plain(3), Plain(3)]).losses(small_batch(), ramp=1.0)
    assert "\n" not in str(e.value)


def test_copies_of_students_are_checked_too() -> None:
    method = MeanTeacher([small_network()])
    assert len(method.teacher._forward_hooks) == 1


def test_logits_of_other_shapes_are_refused() -> None:
    with pytest.raises(UserError, match=r"TwoHeads.*\(16, 3\).*\(16, 2\)"):
        Supervised([TwoHeads(3)]).losses(small_batch(), ramp=1.0)


def test_students_of_the_same_module_are_refused() -> None:
    trunk = nn.Sequential(nn.Flatten(), nn.Linear(16, 8))
    with pytest.raises(UserError, match="share weights"):
        DualStudent([as_student(trunk, 8, 3), as_student(trunk, 8, 3)])


def test_any_module_becomes_a_student_and_learns_as_such() -> None:
    torch.manual_seed(0)
    trunks = [nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU()) for _ in range(2)]  # of feature maps
    method = DualStudent([as_student(trunk, features=8, classes=3) for trunk in trunks])
    for loss in method.losses(small_batch(), ramp=1.0):
        torch.autograd.backward(loss.total)
    for student in method.students:
        assert all(p.grad is not None and p.grad.any() for p in student.parameters())
        found = student(small_batch().views[0])
        mean = student.trunk(small_batch().views[0]).mean(dim=(2, 3))  # type: ignore[operator]
        assert torch.equal(found.features, mean)


@pytest.mark.parametrize("outputs", [(3,), (5, 3), ()])
def test_features_of_other_shapes_are_refused_when_they_are_made(outputs: tuple[int, ...]) -> None:
    student = as_student(Plain(*outputs), features=8, classes=3)
    with pytest.raises(UserError, match=r"Plain returns \(16.*not \(16, 8\).*features"):
        student(small_batch().views[0])


def test_only_modules_become_students() -> None:
    with pytest.raises(UserError, match=r"torch\.nn\.Module"):
        as_student(len, features=8, classes=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("layer", [nn.LazyConv2d(8, 3), nn.LazyBatchNorm2d(affine=False)])
def test_lazy_layers_must_have_seen_a_sample(layer: nn.Module) -> None:
    module = nn.Sequential(nn.Conv2d(1, 8, 1), layer)
    with pytest.raises(UserError, match="Sequential has lazy layers"):
        as_student(module, features=8, classes=3)
    module(torch.zeros(2, 1, 4, 4))
    (loss,) = Supervised([as_student(module, features=8, classes=3)]).losses(small_batch(), 1.0)
    assert loss.total.isfinite()


@pytest.mark.parametrize(
    ("features", "classes", "key"),
    [(8.0, 3, "features"), (0, 3, "features"), ("8", 3, "features"), (True, 3, "features"),
     (8, 0, "classes"), (8, 1, "classes"), (8, None, "classes")],
)  # fmt: skip
def test_numbers_that_make_no_sense_are_refused(features: Any, classes: Any, key: str) -> None:
    with pytest.raises(UserError, match=f"as_student: {key} = "):
        as_student(nn.Flatten(), features, classes)


def test_numbers_may_be_those_of_numpy() -> None:
    student = as_student(nn.Flatten(), np.int64(16), np.int32(3))  # type: ignore[arg-type]
    assert student(small_batch().views[0]).class_logits.shape == (16, 3)


class Echo(nn.Module):
    def forward(self, images: torch.Tensor) -> Prediction:
        return Prediction(*[images.flatten(1)] * 3)


def test_a_student_without_parameters_can_be_looked_at() -> None:
    (loss,) = MeanTeacher([Echo()]).losses(small_batch(), ramp=1.0)
    assert loss.total > 0


def test_a_begun_method_is_not_refused() -> None:
    assert begun(TemporalEnsembling([small_network()])).losses(small_batch(), ramp=1.0)


@pytest.mark.filterwarnings("ignore")  # tracing is deprecated
def test_a_student_of_a_method_can_be_traced() -> None:
    student = small_network()
    MeanTeacher([student])
    student.eval()
    images = torch.rand(2, 1, 28, 28)
    with torch.no_grad():
        traced = torch.jit.trace(student, images, check_trace=False)  # type: ignore[no-untyped-call]
        assert torch.equal(traced(images)[0], student(images).class_logits)
