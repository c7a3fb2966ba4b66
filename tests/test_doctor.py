"""Correct methods pass; every kind of mistake is found and named."""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dualstudent import losses
from dualstudent.batch import Batch
from dualstudent.doctor import Diagnosis, examine
from dualstudent.generators import seeded_rng
from dualstudent.methods import (
    METHODS,
    DualStudent,
    DualStudentSHOT,
    MeanTeacher,
    Method,
    StudentLoss,
    Supervised,
)
from dualstudent.methods.pair import TwoPasses
from dualstudent.training.trainer import Trainer
from tests.support.recipes import small_recipe

NEEDED = {
    "imbalanced-student": ['method.strong_network={name="digits-cnn", width=2}'],
    "mean-teacher+fastswa": ["method.average_from=1"],
    "pi+fastswa": ["method.average_from=1"],
    "self-ensembling": ["method.teacher_threshold=0.01", "method.balance_weight=0.1"],
    "vat": ["method.epsilon=1", "method.entropy_weight=1"],
}


def name_of(kind: type[Method]) -> str:
    return str(kind.Settings.model_fields["name"].default)


def changes_for(kind: type[Method]) -> list[str]:
    # Untrained students are not confident; with a low threshold they still teach.
    has_threshold = "confidence_threshold" in kind.Settings.model_fields
    unsure = ["method.confidence_threshold=0.01"] if has_threshold else []
    strong = ["transforms.strong.noise=0.5"] if "strong" in kind.views.unlabeled else []
    return [f"method.name={name_of(kind)}", *unsure, *strong, *NEEDED.get(name_of(kind), [])]


@pytest.mark.parametrize("kind", METHODS, ids=name_of)
def test_every_method_is_healthy(kind: type[Method]) -> None:
    diagnosis = examine(small_recipe(*changes_for(kind)))
    assert diagnosis.findings == []
    assert diagnosis.off == []
    assert "classification" in {reach.term for reach in diagnosis.reach}
    for reach in diagnosis.reach:
        assert list(reach.norms) == [reach.student]
        assert reach.norms[reach.student]["trunk"] > 0


def test_terms_that_begin_at_a_later_epoch_are_seen() -> None:
    """With bfloat16, since what ends an epoch is not trained in it."""
    changes = ("method.name=shot", "schedule.epochs=6", "device.precision=bf16-mixed")
    diagnosis = examine(small_recipe(*changes))
    assert (diagnosis.findings, diagnosis.off) == ([], [])
    assert len(diagnosis.reach) == 4


def test_a_stage_that_sees_the_target_alone_is_healthy() -> None:
    adapts = ("data.target=mnist-5k", "data.labels=all", "network.batch_norm=by-domain")
    diagnosis = examine(small_recipe("method.name=shot", "method.source_share=0", *adapts))
    assert diagnosis.findings == []
    assert diagnosis.off == ["classification of student"]


def test_teachers_and_averages_are_watched() -> None:
    recipe = small_recipe("method.name=mean-teacher+fastswa", "method.average_from=1")
    assert examine(recipe).networks == ["student", "teacher", "average"]


def examine_as(kind: type[Method], monkeypatch: pytest.MonkeyPatch, *changes: str) -> Diagnosis:
    """``kind`` takes the place of the method whose settings it has."""
    monkeypatch.setattr("dualstudent.methods.METHODS", (kind,))
    return examine(small_recipe(*changes_for(kind), *changes), steps=3)


class WithKnownGradient(Supervised):
    def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
        (loss,) = super().losses(batch, ramp)
        heads: Any = self.students[0].get_submodule("heads")
        loss.terms["known"] = 3 * heads.classify.bias.sum() + 4 * heads.follow.bias[:2].sum()
        return [loss]


def test_reach_is_the_norm_of_the_gradient_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    diagnosis = examine_as(WithKnownGradient, monkeypatch)
    _, known = diagnosis.reach
    expected = {"class head": 3 * 10**0.5, "consistency head": 4 * 2**0.5}
    assert known.norms == {"student": pytest.approx(expected, rel=1e-6)}
    assert diagnosis.healthy


class SeesTheSource(DualStudentSHOT):
    """Takes the entropy of all predictions, although it is meant for the target."""

    def student_loss(
        self, student: TwoPasses, other: TwoPasses, batch: Batch, ramp: float
    ) -> StudentLoss:
        loss = super().student_loss(student, other, batch, ramp)
        loss.terms["entropy"] = losses.entropy(student.own.class_logits).mean()
        return loss


@pytest.mark.parametrize("batch_norm", ["together", "by-domain"])
@pytest.mark.parametrize("kind", [SeesTheSource, DualStudentSHOT])
def test_a_term_of_the_target_that_sees_the_source(
    kind: type[Method], batch_norm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapts = ("data.target=mnist-5k", "data.labels=all", f"network.batch_norm={batch_norm}")
    diagnosis = examine_as(kind, monkeypatch, *adapts)
    domains = {reach.term: reach.domains for reach in diagnosis.reach}
    assert domains["classification"] == {"source"}
    assert domains["consistency"] == {"source", "target"}
    assert domains["pseudo_labels"] == {"target"}
    if kind is DualStudentSHOT:
        assert domains["entropy"] == {"target"}
        assert diagnosis.findings == []
    else:
        assert [each.split()[:3] for each in diagnosis.findings] == [
            ["entropy", "of", "student1"],
            ["entropy", "of", "student2"],
        ]


def test_a_term_without_weight_is_not_a_finding() -> None:
    diagnosis = examine(small_recipe("method.consistency_weight=0.0"), steps=2)
    assert diagnosis.findings == []
    assert {"consistency of student1", "consistency of student2"} <= set(diagnosis.off)


def test_terms_are_seen_at_full_weight_however_long_the_ramp() -> None:
    values = [
        {(r.student, r.term): r.value for r in examine(small_recipe(change), steps=2).reach}
        for change in ("schedule.rampup_epochs=0", "schedule.rampup_epochs=2")
    ]
    key = ("student1", "consistency")
    assert values[0][key] == values[1][key] > 0


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trainer, filters = Trainer(small_recipe()), list(warnings.filters)
    with seeded_rng("a state that no step leaves"):
        random_state = torch.get_rng_state()
        examine(trainer, steps=2)
        assert torch.equal(torch.get_rng_state(), random_state)
    assert warnings.filters == filters
    assert not any(tmp_path.iterdir())
    assert not trainer.method._forward_hooks
    assert not trainer.method._forward_pre_hooks


def teacher_logits(method: MeanTeacher, view: Tensor) -> Tensor:
    logits: Tensor = method.teacher(view).class_logits
    return logits


class ConsistencyOfTheTeacher(MeanTeacher):
    """The famous one: both sides of the consistency are the teacher's."""

    def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
        (loss,) = super().losses(batch, ramp)
        target = teacher_logits(self, batch.views[1]).softmax(dim=1)
        loss.terms["consistency"] = losses.consistency(teacher_logits(self, batch.views[0]), target)
        return [loss]


class ConsistencyOfTheTeacherWithItself(MeanTeacher):
    """The same on one view and pass: exactly 0, but not for lack of weight."""

    def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
        (loss,) = super().losses(batch, ramp)
        logits = teacher_logits(self, batch.views[0])
        loss.terms["consistency"] = losses.consistency(logits, logits.softmax(dim=1))
        return [loss]


@pytest.mark.parametrize("kind", [ConsistencyOfTheTeacher, ConsistencyOfTheTeacherWithItself])
def test_consistency_without_gradient_is_found(
    kind: type[Method], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert examine_as(kind, monkeypatch).findings == [
        "consistency of student does not reach student"
    ]


class Detached(MeanTeacher):
    def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
        (loss,) = super().losses(batch, ramp)
        return [StudentLoss({name: term.detach() for name, term in loss.terms.items()})]


def test_losses_without_gradient_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert examine_as(Detached, monkeypatch).findings == [
        "classification of student does not reach student",
        "logit_distance of student does not reach student",
        "consistency of student does not reach student",
        "student never moves",
    ]


class NeverGoesBackward(Trainer):
    def take_step(self, step: int) -> list[StudentLoss]:
        terms = self._wrapped(self._loader.batch(step), self.schedule.ramp(step))
        return [StudentLoss(each) for each in terms]


class DoesNothing(Trainer):
    def take_step(self, step: int) -> list[StudentLoss]:
        return []


def test_a_step_without_backward_is_found() -> None:
    findings = examine(NeverGoesBackward(small_recipe()), steps=2).findings
    assert findings == ["student1 never moves", "student2 never moves"]


def test_a_step_that_does_nothing_is_found() -> None:
    findings = examine(DoesNothing(small_recipe("method.name=supervised")), steps=2).findings
    assert findings[:2] == ["no step asks the method for its losses", "student never moves"]
    assert len(findings) == 3
    assert findings[2].startswith("batch-norm statistics of student do not move: trunk.0.1.running")


class EvaluatesItsTeacher(MeanTeacher):
    def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
        found = super().losses(batch, ramp)
        self.teacher.eval()
        return found


class EvaluatesAPartAfterAnEpoch(MeanTeacher):
    def after_epoch(self, epoch: int, batches: Iterable[Batch]) -> None:
        self.students[0].get_submodule("trunk").eval()


@pytest.mark.parametrize(
    ("kind", "finding"),
    [
        (EvaluatesItsTeacher, "teacher is left in evaluation mode after a step"),
        (
            EvaluatesAPartAfterAnEpoch,
            "student is left in evaluation mode after the end of an epoch",
        ),
    ],
)
def test_a_method_that_leaves_a_network_in_evaluation_mode_is_found(
    kind: type[Method], finding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert examine_as(kind, monkeypatch).findings == [finding]


def test_an_evaluation_that_leaves_networks_in_evaluation_mode_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @contextmanager
    def without_way_back(*networks: nn.Module) -> Iterator[None]:
        for network in networks:
            network.eval()
        with torch.inference_mode():
            yield

    monkeypatch.setattr("dualstudent.training.inference.evaluation_mode", without_way_back)
    assert examine_as(MeanTeacher, monkeypatch).findings == [
        "student is left in evaluation mode after an evaluation",
        "teacher is left in evaluation mode after an evaluation",
    ]


class LearnsInEvaluationMode(Supervised):
    def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
        self.eval()
        found = super().losses(batch, ramp)
        self.train()
        return found


def test_batch_norm_statistics_that_stand_still_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    (finding,) = examine_as(LearnsInEvaluationMode, monkeypatch).findings
    assert finding.startswith(
        "batch-norm statistics of student do not move: trunk.0.1.running_mean"
    )


class TeacherWithGradient(MeanTeacher):
    """A teacher that was copied and forgotten, and a target that is not a constant."""

    def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
        (loss,) = super().losses(batch, ramp)
        followed = self.students[0](batch.views[0]).consistency_logits.softmax(dim=1)
        target = teacher_logits(self, batch.views[1]).softmax(dim=1)
        loss.terms["consistency"] = losses.squared_distance(followed, target).mean()
        return [loss]

    def begin(self, task: Any) -> None:
        self.teacher.requires_grad_()


def test_a_teacher_with_gradient_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert examine_as(TeacherWithGradient, monkeypatch).findings == [
        "the trunk of teacher requires gradient, but is no student",
        "the class head of teacher requires gradient, but is no student",
        "the consistency head of teacher requires gradient, but is no student",
        "consistency of student reaches teacher, which is no student",
        "there is gradient before backward: a step or the method left it there",
    ]


class SlippedTarget(DualStudent):
    """The first student pulls at the second one, which should be its constant guide."""

    def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
        first, second = super().losses(batch, ramp)
        guide = self.students[1](batch.views[1]).class_logits.softmax(dim=1)
        followed = self.students[0](batch.views[0]).consistency_logits.softmax(dim=1)
        first.terms["stabilization"] = losses.squared_distance(followed, guide).mean()
        return [first, second]


def test_a_term_that_reaches_the_other_student_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    diagnosis = examine_as(SlippedTarget, monkeypatch)
    assert diagnosis.findings == [
        "stabilization of student1 reaches student2, which is another student"
    ]
    (leaking,) = (reach for reach in diagnosis.reach if len(reach.norms) > 1)
    assert set(leaking.norms["student2"]) == {"trunk", "class head"}


class SlipsAfterAnEpoch(SlippedTarget):
    """Healthy until then, so that every term has arrived once before."""

    slipped = False

    def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
        healthy = DualStudent.losses(self, batch, ramp)
        return super().losses(batch, ramp) if self.slipped else healthy

    def after_epoch(self, epoch: int, batches: Iterable[Batch]) -> None:
        self.slipped = True


def test_terms_are_looked_at_again_after_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert examine_as(SlipsAfterAnEpoch, monkeypatch).findings == [
        "stabilization of student1 reaches student2, which is another student"
    ]


def test_a_student_that_no_optimizer_owns_is_found() -> None:
    trainer = Trainer(small_recipe("method.confidence_threshold=0.0"))
    trainer.state.optimizers = trainer.state.optimizers[:1]
    assert examine(trainer, steps=2).findings == [
        "the trunk of student2 is not entirely in an optimizer",
        "the class head of student2 is not entirely in an optimizer",
        "the consistency head of student2 is not entirely in an optimizer",
        "there is gradient before backward: a step or the method left it there",
        "student2 never moves",
    ]


def test_a_parameter_that_no_optimizer_owns_is_found() -> None:
    trainer = Trainer(small_recipe("method.name=supervised"))
    forgotten = trainer.method.students[0].get_parameter("heads.classify.bias")
    (group,) = trainer.state.optimizers[0].param_groups
    group["params"] = [p for p in group["params"] if p is not forgotten]
    assert examine(trainer, steps=2).findings == [
        "the class head of student is not entirely in an optimizer",
        "there is gradient before backward: a step or the method left it there",
        "student has gradient but does not move in heads.classify.bias",
    ]


def test_a_teacher_in_an_optimizer_is_found() -> None:
    trainer = Trainer(small_recipe("method.name=mean-teacher"))
    teacher: nn.Module = trainer.method.get_submodule("teacher.heads.classify")
    trainer.state.optimizers[0].add_param_group({"params": list(teacher.parameters())})
    findings = examine(trainer, steps=2).findings
    assert findings == ["the class head of teacher is in an optimizer, but is no student"]


class GoesBackwardItself(Supervised):
    """As a search for adversarial directions does if it calls backward."""

    def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
        found = super().losses(batch, ramp)
        torch.autograd.backward(self.students[0](batch.views[0]).class_logits.sum())
        return found


def test_gradient_that_is_no_terms_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert examine_as(GoesBackwardItself, monkeypatch).findings == [
        "there is gradient before backward: a step or the method left it there"
    ]


class RemembersItsGraph(Supervised):
    def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
        found = super().losses(batch, ramp)
        self.register_buffer("latest", found[0].total)
        return found


class IsNotFinite(Supervised):
    def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
        (loss,) = super().losses(batch, ramp)
        return [StudentLoss({name: term * float("inf") for name, term in loss.terms.items()})]


@pytest.mark.parametrize(
    ("kind", "finding"),
    [
        (RemembersItsGraph, "the buffer latest carries gradient from one step to the next"),
        (IsNotFinite, "classification of student or its gradient is not finite"),
    ],
)
def test_other_mistakes_are_found(
    kind: type[Method], finding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert finding in examine_as(kind, monkeypatch).findings
