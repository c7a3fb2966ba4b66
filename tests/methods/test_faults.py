"""A batch with wrong contents, from a loop of one's own, is named in one line."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dualstudent import (
    Batch,
    DualStudent,
    FixMatch,
    MeanTeacher,
    MeanTeacherSettings,
    Method,
    StudentLoss,
    Supervised,
    Task,
    TemporalEnsembling,
    UserError,
    as_student,
)
from tests.support.operations import Operations
from tests.support.students import small_batch, small_network

TASK = Task(9, samples=16, classes=3, image_shape=(1, 4, 4), value_range=1, unlabeled=12)
GOOD = small_batch()
VIEW, LABELS = GOOD.views[0], GOOD.labels


def make_views(change: Callable[[Tensor], Any]) -> tuple[Any, Any]:
    return change(GOOD.views[0]), change(GOOD.views[1])


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ({"labels": LABELS.int()}, r"labels must be .*int64, not .*\(16,\) of torch.int32"),
        ({"labels": LABELS.float()}, r"labels must be .*int64, not .*torch.float32"),
        ({"labels": nn.functional.one_hot(LABELS + 1).float()}, r"labels must be .*\(16, 4\)"),
        ({"labels": LABELS[:, None]}, r"labels must be .*\(16, 1\)"),
        ({"labels": LABELS.tolist()}, "labels must be a tensor .* not a list"),
        ({"labels": LABELS.to("meta")}, "view 1 must be .* on meta, as the labels .* on cpu"),
        ({"views": VIEW}, r"views must be a tuple of tensors, not a tensor \(16"),
        ({"views": make_views(Tensor.numpy)}, "view 1 must be a tensor .* not a ndarray"),
        ({"views": (VIEW, VIEW[:, 0, 0, 0])}, r"view 2 must be .*\(samples, …\).*\(16,\)"),
        ({"unlabeled": (LABELS < 0).long()}, "unlabeled must be 16 .*bool .* not .*int64"),
        ({"unlabeled": (LABELS < 0)[1:]}, r"unlabeled must be 16 .* not .*\(15,\)"),
        ({"indices": torch.arange(4)}, r"indices must be 16 .* not .*\(4,\)"),
        ({"domains": torch.zeros(16)}, "domains must be 16 .*int64 .* not .*float32"),
    ],
)  # fmt: skip
def test_a_batch_of_other_types_and_shapes_cannot_be_made(
    contents: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=f"^Batch: {message}"):
        Batch(**{"views": GOOD.views, "labels": LABELS} | contents)


@pytest.mark.parametrize(
    ("kind", "batch", "message"),
    [
        (MeanTeacher, (VIEW, LABELS), "needs a dualstudent.Batch, not a tuple"),
        (MeanTeacher, Batch((VIEW,), LABELS), r"1 view\(s\), not 2.*weak"),
        (FixMatch, Batch((VIEW,), LABELS), r"1 view\(s\), not 2.*weak.*strong"),
        (MeanTeacher, Batch((VIEW, VIEW[:1]), LABELS), r"view 2 has 1 row\(s\) for 16 labels"),
        (FixMatch, Batch((VIEW[:12], VIEW), LABELS), r"view 1 has 12 row\(s\) for 16 labels"),
        (FixMatch, Batch((VIEW, VIEW[:9]), LABELS), r"view 2 has 9 row\(s\) for 12 unlabeled"),
        (Supervised, Batch((VIEW[:4],), LABELS), r"view 1 has 4 row\(s\) for 16 labels"),
        (Supervised, Batch((VIEW,), LABELS + 1), "labels go from 0 to 3, not from 0 to 2"),
        (Supervised, Batch((VIEW,), LABELS * 100), "labels go from -100 to 200"),
        (
            MeanTeacher,
            Batch(make_views(Tensor.double), LABELS),
            "view 1 is torch.float64 .*float32",
        ),
        (MeanTeacher, Batch(make_views(Tensor.byte), LABELS), "view 1 is torch.uint8 .*float32"),
        (FixMatch, Batch((VIEW, VIEW[:12, :, 1:]), LABELS), r"\(1, 4, 4\) and \(1, 3, 4\)"),
        (
            MeanTeacher,
            Batch(make_views(lambda view: view[:, 0]), LABELS),
            r"\(4, 4\).* \(1, 4, 4\)",
        ),
        (TemporalEnsembling, Batch((VIEW,), LABELS, indices=torch.arange(9, 25)), "index 24.* 16"),
        (MeanTeacher, Batch((VIEW / 0, VIEW), LABELS), "not finite, as view 1 has values that are"),
        (FixMatch, Batch((VIEW, VIEW), LABELS.clamp(min=0)), "not finite.* no sample without"),
    ],
)
def test_a_batch_that_does_not_suit_the_method_is_named(
    kind: type[Method], batch: Any, message: str
) -> None:
    method = kind([small_network()])
    method.begin(TASK)
    with pytest.raises(UserError, match=f"^{method.settings.name}: .*{message}"):
        method.losses(batch, ramp=1.0)


def test_students_of_other_classes_than_each_other_or_the_task_are_named() -> None:
    four, three = (as_student(nn.Flatten(), features=16, classes=number) for number in (4, 3))
    with pytest.raises(UserError, match="3 classes, another student 4"):
        DualStudent([four, three]).losses(small_batch(), ramp=1.0)
    method = TemporalEnsembling([four])
    method.begin(TASK)
    with pytest.raises(UserError, match=r"4 classes, but begin.* 3"):
        method.losses(small_batch(), ramp=1.0)


class Broken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, images: Tensor) -> Tensor:
        raise KeyError("mine")


def test_what_is_no_fault_of_the_batch_is_left_as_it_is() -> None:
    method: Method = MeanTeacher([as_student(Broken(), features=1, classes=3)])
    with pytest.raises(KeyError, match="mine"):
        method.losses(small_batch(), ramp=1.0)
    method = MeanTeacher([small_network()], MeanTeacherSettings(consistency_weight=1e39))
    (loss,) = method.losses(small_batch(), ramp=1.0)  # diverged: the loop decides what to do
    assert not loss.total.isfinite()


def test_other_floats_are_no_fault_in_mixed_precision() -> None:
    class Mine(Supervised):
        def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
            self.students[0](batch.views[0])
            raise ValueError("mine")

    halves = Batch(make_views(Tensor.bfloat16), LABELS)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ValueError, match=r"^mine$"):
        Mine([small_network()]).losses(halves, ramp=1.0)
    with pytest.raises(UserError, match=r"view 1 is torch.bfloat16 .*float32"):
        Mine([small_network()]).losses(halves, ramp=1.0)
    doubles = Batch(make_views(Tensor.double), LABELS)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(UserError, match=r"torch.float64"):
        Mine([small_network()]).losses(doubles, ramp=1.0)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (torch.zeros(()), "a list of 1 StudentLoss"),
        ([StudentLoss({"mine": torch.zeros(())})] * 2, "a list of 1 StudentLoss"),
        ([StudentLoss({"mine": torch.zeros(16)})], r"'mine' must be a scalar.* not .*\(16,\)"),
        ([StudentLoss({"mine": 0.0})], "'mine' must be a scalar.* not a float"),  # type: ignore[dict-item]
    ],
)
def test_losses_of_a_method_of_others_are_one_scalar_per_term(returned: Any, message: str) -> None:
    class Mine(Supervised):
        def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
            return returned  # type: ignore[no-any-return]

    with pytest.raises(UserError, match=message):
        Mine([small_network()]).losses(GOOD, ramp=1.0)


def test_the_check_of_a_good_batch_computes_nothing() -> None:
    method = Supervised([small_network()])
    with Operations() as without:
        method.settings.compute_classification(method.students[0](VIEW).class_logits, LABELS)
    with Operations() as noted:
        method.losses(GOOD, ramp=1.0)
    reads = [each for each in noted.seen if each is torch.ops.aten._local_scalar_dense.default]
    assert len(reads) == 1  # the only term, which a CPU has at hand
    assert len(noted.seen) - 1 == len(without.seen)
