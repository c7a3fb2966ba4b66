import copy
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dualstudent import Run, UserError, resume, train
from dualstudent.batch import Batch
from dualstudent.generators import seeded_rng
from dualstudent.methods import (
    MeanTeacher,
    MeanTeacherFastSWA,
    MeanTeacherFastSWASettings,
    Method,
    PiFastSWA,
    PiFastSWASettings,
    PiModel,
    Task,
)
from dualstudent.networks.layers import DecoupledHeads, add_weight_norm
from dualstudent.prediction import Prediction
from dualstudent.signals import Interrupted
from dualstudent.training.checkpoint import read_tensors
from tests.support.recipes import small_recipe
from tests.support.runs import RaisesSignalAt, assert_equal_runs
from tests.support.students import begun, small_batch, small_network

EVERY_SECOND_FROM_3 = PiFastSWASettings(average_from=3, average_every=2)


def moved(student: nn.Module, epoch: int) -> None:
    """Weights and batch-norm statistics as an epoch of training would leave them."""
    with seeded_rng("moved", epoch), torch.no_grad():
        for p in student.parameters():
            p.add_(torch.randn_like(p))
    student(small_batch().views[0] + epoch)


def test_average_is_the_mean_of_the_epochs_that_count() -> None:
    student = small_network()
    method = PiFastSWA([student], EVERY_SECOND_FROM_3)
    average = method.evaluated["average"]
    counted: list[list[np.ndarray]] = []
    for epoch in range(1, 10):
        moved(student, epoch)
        if epoch in (3, 5, 7, 9):
            counted.append([p.detach().double().numpy().copy() for p in student.parameters()])
        method.after_epoch(epoch - 1, [small_batch()])
        if counted:
            expected = [np.mean(values, axis=0) for values in zip(*counted, strict=True)]
            for p, value in zip(average.parameters(), expected, strict=True):
                np.testing.assert_allclose(p.numpy(), value, rtol=1e-5, atol=1e-6)
    assert len(counted) == 4


def test_average_is_the_student_until_the_first_epoch_that_counts() -> None:
    student = small_network()
    method = PiFastSWA([student], EVERY_SECOND_FROM_3)
    for epoch in range(3):
        average = method.evaluated["average"].state_dict()
        for name, tensor in student.state_dict().items():
            assert torch.equal(tensor, average[name]), name
        moved(student, epoch)
        method.after_epoch(epoch, [])


def test_average_rests_between_the_epochs_that_count() -> None:
    student = small_network()
    method = PiFastSWA([student], EVERY_SECOND_FROM_3)
    for epoch in (2, 4):
        moved(student, epoch)
        method.after_epoch(epoch, [small_batch()])
    before = copy.deepcopy(method.average.state_dict())
    moved(student, 5)
    method.after_epoch(5, [small_batch()])
    for name, tensor in method.average.state_dict().items():
        assert torch.equal(tensor, before[name]), name


class NormalizedLine(nn.Module):
    """One layer with weight normalization and one batch norm: small enough for NumPy."""

    def __init__(self) -> None:
        super().__init__()
        with seeded_rng("line"):
            self.line = add_weight_norm(nn.Linear(4, 3))
            self.heads = DecoupledHeads(3, 2)
        self.norm = nn.BatchNorm1d(3, momentum=0.2)

    def forward(self, x: Tensor) -> Prediction:
        prediction: Prediction = self.heads(self.norm(self.line(x)))
        return prediction


def points(count: int) -> Batch:
    with seeded_rng("points", count):
        x = torch.randn(count, 4) + count
    nothing_to_see = torch.full_like(x, torch.nan)
    unknown = torch.full((count,), -1)
    return Batch((x, nothing_to_see), unknown, unknown < 0, torch.arange(count))


def test_batch_norm_of_the_average_is_computed_afresh_over_the_batches() -> None:
    student = NormalizedLine()
    method = PiFastSWA([student], PiFastSWASettings(average_from=1, average_every=1))
    for epoch in range(3):
        with torch.no_grad(), seeded_rng("line moves", epoch):
            for p in student.line.parameters():
                p.add_(torch.randn_like(p))
        student(points(6).views[0])
        statistics = copy.deepcopy(student.norm.state_dict())
        batches = [points(count) for count in (5, 7, 9)]
        method.after_epoch(epoch, iter(batches))
    state = {k: v.double().numpy() for k, v in method.evaluated["average"].state_dict().items()}
    length, direction, bias = (
        state[f"line.{name}"]
        for name in (
            "parametrizations.weight.original0",
            "parametrizations.weight.original1",
            "bias",
        )
    )
    weight = length * direction / np.linalg.norm(direction, axis=1, keepdims=True)
    answers = [batch.views[0].double().numpy() @ weight.T + bias for batch in batches]
    mean = np.mean([answer.mean(axis=0) for answer in answers], axis=0)
    variance = np.mean([answer.var(axis=0, ddof=1) for answer in answers], axis=0)
    np.testing.assert_allclose(state["norm.running_mean"], mean, rtol=1e-5)
    np.testing.assert_allclose(state["norm.running_var"], variance, rtol=1e-5)
    for name, tensor in student.norm.state_dict().items():
        assert torch.equal(tensor, statistics[name]), name  # the student's are its own
    norm = method.evaluated["average"].get_submodule("norm")
    assert isinstance(norm, nn.BatchNorm1d)
    assert norm.momentum == 0.2
    assert norm.training


def test_batches_are_made_only_if_an_average_needs_them() -> None:
    def never() -> Iterator[Batch]:
        pytest.fail("a batch was made")
        yield

    method = PiFastSWA([small_network()], EVERY_SECOND_FROM_3)
    for epoch in (0, 1, 3):
        method.after_epoch(epoch, never())


def test_the_addition_changes_nothing_of_what_the_student_learns() -> None:
    pairs: list[tuple[Method, Method]] = [
        (PiModel([small_network()]), PiFastSWA([small_network()])),
        (MeanTeacher([small_network()]), MeanTeacherFastSWA([small_network()])),
    ]
    for plain, extended in pairs:
        (expected,) = plain.losses(small_batch(), ramp=0.5)
        (loss,) = begun(extended).losses(small_batch(), ramp=0.5)
        assert {name: term.item() for name, term in loss.terms.items()} == {
            name: term.item() for name, term in expected.terms.items()
        }
        torch.autograd.backward(loss.total)
        assert all(p.grad is None for p in extended.evaluated["average"].parameters())
        assert list(extended.evaluated) == [*plain.evaluated, "average"]
        assert extended.headline == ["average"]


def test_the_teacher_is_still_moved_after_each_step() -> None:
    method = MeanTeacherFastSWA([small_network()], MeanTeacherFastSWASettings(decay=0.5))
    before = [p.clone() for p in method.teacher.parameters()]
    moved(method.students[0], 0)
    method.after_step(0)
    students = method.students[0].parameters()
    for p, old, new in zip(method.teacher.parameters(), before, students, strict=True):
        torch.testing.assert_close(p, (old + new.detach()) / 2)


def test_an_average_that_would_begin_after_the_end_is_refused() -> None:
    task = Task(epochs=9, samples=9, classes=3, image_shape=(1, 4, 4), value_range=2.0)
    PiFastSWA([small_network()], PiFastSWASettings(average_from=8)).begin(task)
    with pytest.raises(UserError, match=r"^method\.average_from = 9: .*schedule\.epochs = 9$"):
        PiFastSWA([small_network()], PiFastSWASettings(average_from=9)).begin(task)


CYCLES = (
    "method.average_from=2",
    "method.average_every=1",
    "schedule.epochs=5",
    "schedule.cosine_epochs=4",
    "schedule.cycle_from=1",
    "schedule.cycle_length=2",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pi+fastswa", "mean-teacher+fastswa"])
@pytest.mark.learns
def test_a_stopped_run_continues_bit_for_bit(name: str, tmp_path: Path) -> None:
    recipe = small_recipe(f"method.name={name!r}", *CYCLES)
    whole = train(recipe, tmp_path / "whole")
    folder = tmp_path / "stopped"
    with pytest.raises(Interrupted):
        train(recipe, folder, RaisesSignalAt(40))  # before the first average
    for step in (58, 100):  # right after the first of 29 steps each, and after the second
        with pytest.raises(Interrupted):
            resume(folder, RaisesSignalAt(step))
    assert int(read_tensors(Run.open(folder).checkpoint)[0]["method/average.n_averaged"]) == 2
    assert_equal_runs(resume(folder), whole)
    result = whole.read_result()
    # 22.8 and 21.7; chance is 90.
    assert result["error"] == result["networks"]["average"]["error"] < 60
    assert result["networks"]["average"] != result["networks"]["student"]
    rates = [record["learning_rate"] for record in whole.read_metrics()]
    assert rates[1:3] == rates[3:5]
