import copy
from dataclasses import replace
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from dualstudent.generators import seeded_rng
from dualstudent.methods import DualStudent, DualStudentSettings, StudentLoss
from dualstudent.methods.dual_student import student_loss
from dualstudent.methods.pair import TwoPasses
from dualstudent.networks import DigitsCNN
from dualstudent.prediction import Prediction
from tests.support.students import Recorder, reached_parts, small_batch, small_network

TERMS = ["classification", "logit_distance", "consistency", "stabilization"]

Golden = dict[str, NDArray[Any]]


@pytest.fixture(params=range(5), ids=lambda number: f"case{number}")
def golden(request: pytest.FixtureRequest) -> Golden:
    prefix = f"case{request.param}/"
    with np.load(Path(__file__).parents[1] / "golden" / "dual_student_step.npz") as cases:
        return {k.removeprefix(prefix): cases[k] for k in cases.files if k.startswith(prefix)}


def golden_passes(golden: Golden, student: str) -> TwoPasses:
    logits = {
        which: torch.from_numpy(golden[f"{student}_{which}"]).requires_grad_()
        for which in ("own_class", "own_cons", "other_class")
    }
    own = Prediction(logits["own_class"], logits["own_cons"], features=torch.empty(0))
    return TwoPasses(own, logits["other_class"])


def golden_losses(golden: Golden, passes: dict[str, TwoPasses]) -> dict[str, StudentLoss]:
    settings = DualStudentSettings(
        consistency_weight=golden["consistency_weight"].item(),
        stabilization_weight=golden["stabilization_weight"].item(),
        confidence_threshold=golden["threshold"].item(),
        logit_distance_weight=golden["logit_distance_weight"].item(),
    )
    progress = min(1.0, golden["epoch"].item() / golden["rampup_epochs"].item())
    ramp = exp(-5 * (1 - progress) ** 2)
    labels = torch.from_numpy(golden["labels"])
    return {
        student: student_loss(passes[student], passes[other], labels, labels < 0, settings, ramp)
        for student, other in [("left", "right"), ("right", "left")]
    }


def test_every_term_has_its_reference_value(golden: Golden) -> None:
    passes = {student: golden_passes(golden, student) for student in ("left", "right")}
    for student, loss in golden_losses(golden, passes).items():
        assert list(loss.terms) == TERMS
        for name, value in {**loss.terms, "total": loss.total}.items():
            expected = golden[f"{student}_loss_{name}"].item()
            assert value.item() == pytest.approx(expected, rel=1e-5, abs=0), f"{student} {name}"


def test_every_gradient_has_its_reference_value(golden: Golden) -> None:
    passes = {student: golden_passes(golden, student) for student in ("left", "right")}
    losses = golden_losses(golden, passes)
    # Backward runs on the sum, so a gradient into the other student would show.
    torch.autograd.backward(losses["left"].total + losses["right"].total)
    for student, two_passes in passes.items():
        own = two_passes.own
        for head, logits in [("class", own.class_logits), ("cons", own.consistency_logits)]:
            assert logits.grad is not None
            expected = golden[f"{student}_grad_{head}"]
            error = np.abs(logits.grad.numpy() - expected).max()
            assert error <= 1e-5 * np.abs(expected).max(), f"{student} {head}"
        assert two_passes.other_class_logits.grad is None


def passes_of(own_class: float, own_consistency: float, other_class: float) -> TwoPasses:
    """Predictions of a student, as probabilities of the first of two classes."""
    heads = [
        torch.tensor([[log(p), log(1 - p)]], dtype=torch.float64)
        for p in (own_class, own_consistency, other_class)
    ]
    return TwoPasses(Prediction(heads[0], heads[1], torch.empty(0)), heads[2])


def repeated(passes: TwoPasses, times: int) -> TwoPasses:
    own_class, own_consistency, other_class = (
        logits.repeat(times, 1) for logits in (*passes.own[:2], passes.other_class_logits)
    )
    return TwoPasses(Prediction(own_class, own_consistency, torch.empty(0)), other_class)


# With ξ = 0.8 one is unsure of both views and the other sure of its own.
UNSURE = passes_of(own_class=0.6, own_consistency=0.5, other_class=0.55)
SURE = passes_of(own_class=0.9, own_consistency=0.95, other_class=0.7)


def terms_of(
    student: TwoPasses,
    other: TwoPasses,
    labels: list[int],
    unlabeled: list[bool] | None = None,
    ramp: float = 1.0,
    **settings: Any,
) -> dict[str, float]:
    known = torch.tensor(labels)
    teaching = known < 0 if unlabeled is None else torch.tensor(unlabeled)
    chosen = DualStudentSettings(**settings)
    loss = student_loss(student, other, known, teaching, chosen, ramp)
    return {name: term.item() for name, term in loss.terms.items()}


def kl(target: float, predicted: float) -> float:
    return target * log(target / predicted) + (1 - target) * log((1 - target) / (1 - predicted))


def test_unsure_student_follows_the_sure_one() -> None:
    terms = terms_of(UNSURE, SURE, labels=[-1])
    assert terms == pytest.approx(
        {
            "classification": 0,
            "logit_distance": 0.01 * (log(0.6 / 0.5) ** 2 + log(0.4 / 0.5) ** 2) / 2,
            "consistency": 10 * (0.5 - 0.55) ** 2,
            "stabilization": 100 * (0.5 - 0.9) ** 2,
        },
        rel=1e-12,
    )


def test_sure_student_does_not_follow_the_unsure_one() -> None:
    assert terms_of(SURE, UNSURE, labels=[-1])["stabilization"] == 0


def test_more_stable_of_two_sure_students_guides() -> None:
    steadier = passes_of(own_class=0.9, own_consistency=0.8, other_class=0.85)
    assert terms_of(SURE, steadier, labels=[-1])["stabilization"] == pytest.approx(
        100 * (0.95 - 0.9) ** 2, rel=1e-12
    )
    assert terms_of(steadier, SURE, labels=[-1])["stabilization"] == 0


def test_equally_stable_students_do_not_constrain_each_other() -> None:
    assert terms_of(SURE, SURE, labels=[-1])["stabilization"] == 0


def test_compared_views_same_follows_the_guide_on_the_students_own_view() -> None:
    terms = terms_of(UNSURE, SURE, labels=[-1], compared_views="same")
    assert terms["stabilization"] == pytest.approx(100 * (0.5 - 0.7) ** 2, rel=1e-12)
    own = terms_of(UNSURE, SURE, labels=[-1], compared_views="own")
    assert {**terms, "stabilization": own["stabilization"]} == own


def test_distance_kl_measures_both_constraints_but_not_the_stability() -> None:
    terms = terms_of(UNSURE, SURE, labels=[-1], distance="kl")
    assert terms["consistency"] == pytest.approx(10 * kl(0.55, 0.5), rel=1e-12)
    assert terms["stabilization"] == pytest.approx(100 * kl(0.9, 0.5), rel=1e-12)
    squared = terms_of(UNSURE, SURE, labels=[-1])
    assert terms["logit_distance"] == squared["logit_distance"]
    # Eq. 4 stays a squared distance: the first student is the steadier one by it
    # (0.008 < 0.010); by KL it would be the second (0.145 > 0.023).
    steady = passes_of(own_class=0.95, own_consistency=0.99, other_class=0.9)
    by_kl_steady = passes_of(own_class=0.85, own_consistency=0.7, other_class=0.6)
    assert terms_of(steady, by_kl_steady, labels=[-1], distance="kl")["stabilization"] == 0
    assert terms_of(by_kl_steady, steady, labels=[-1], distance="kl")["stabilization"] > 0


@pytest.mark.parametrize(("average", "divisor"), [("batch", 4), ("labeled", 1)])
def test_classification_average(average: str, divisor: int) -> None:
    terms = terms_of(
        repeated(UNSURE, 4),
        repeated(SURE, 4),
        labels=[-1, -1, -1, 0],
        classification_average=average,
    )
    assert terms["classification"] == pytest.approx(-log(0.6) / divisor, rel=1e-12)


def test_labeled_samples_take_no_part_in_stabilization_but_in_consistency() -> None:
    student, other = repeated(UNSURE, 4), repeated(SURE, 4)
    terms = terms_of(student, other, labels=[-1, 0, 1, 0])
    assert terms["stabilization"] == pytest.approx(100 * (0.5 - 0.9) ** 2 / 4, rel=1e-12)
    assert terms["consistency"] == pytest.approx(10 * (0.5 - 0.55) ** 2, rel=1e-12)


def test_all_labeled_samples_take_part_in_stabilization() -> None:
    terms = terms_of(repeated(UNSURE, 2), repeated(SURE, 2), [0, 1], unlabeled=[True, True])
    assert terms["stabilization"] == pytest.approx(100 * (0.5 - 0.9) ** 2, rel=1e-12)
    assert terms["classification"] == pytest.approx(-(log(0.6) + log(0.4)) / 2, rel=1e-12)


def test_ramp_weighs_consistency_and_stabilization_only() -> None:
    student, other = repeated(UNSURE, 2), repeated(SURE, 2)
    full = terms_of(student, other, labels=[-1, 0], ramp=1.0)
    assert all(term > 0 for term in full.values())
    for ramp in (0.0, 0.25):
        weighed = {name: ramp * full[name] for name in ("consistency", "stabilization")}
        assert terms_of(student, other, [-1, 0], ramp=ramp) == pytest.approx(full | weighed)


@pytest.fixture
def students() -> list[DigitsCNN]:
    return [small_network(0), small_network(1)]


# Untrained students are not confident; without a threshold they still teach each other.
WITHOUT_THRESHOLD = DualStudentSettings(confidence_threshold=0.0)


def test_swapping_students_and_views_swaps_the_losses(students: list[DigitsCNN]) -> None:
    batch = small_batch()
    swapped = replace(batch, views=batch.views[::-1])
    losses = DualStudent(students, WITHOUT_THRESHOLD).losses(batch, ramp=1.0)
    mirrored = DualStudent(students[::-1], WITHOUT_THRESHOLD).losses(swapped, ramp=1.0)
    for loss, mirror in zip(losses, mirrored[::-1], strict=True):
        for name in TERMS:
            assert loss.terms[name].item() == mirror.terms[name].item() > 0
    assert losses[0].total.item() != losses[1].total.item()


def test_each_student_sees_its_own_view_with_gradient_and_the_other_without(
    students: list[DigitsCNN],
) -> None:
    recorders, batch = [Recorder(student) for student in students], small_batch()
    DualStudent(recorders).losses(batch, ramp=1.0)
    own_views = [batch.views[0], batch.views[1]]
    for recorder, own, other in zip(recorders, own_views, own_views[::-1], strict=True):
        assert sum(carries_gradient for _, carries_gradient in recorder.shown) == 1
        assert len(recorder.shown) == 2
        for view, carries_gradient in recorder.shown:
            assert view is (own if carries_gradient else other)


def test_both_passes_are_made_in_training_mode(students: list[DigitsCNN]) -> None:
    DualStudent(students).losses(small_batch(), ramp=1.0)
    for student in students:
        assert student.training
        norms = [module for module in student.modules() if isinstance(module, nn.BatchNorm2d)]
        assert [int(norm.num_batches_tracked or 0) for norm in norms] == [2, 2, 2]


@pytest.mark.parametrize(
    ("term", "reached"),
    [
        ("classification", {"trunk", "class head"}),
        ("logit_distance", {"trunk", "class head", "consistency head"}),
        ("consistency", {"trunk", "consistency head"}),
        ("stabilization", {"trunk", "consistency head"}),
    ],
)
@pytest.mark.parametrize("own", [0, 1])
def test_each_term_reaches_what_it_should(
    students: list[DigitsCNN], own: int, term: str, reached: set[str]
) -> None:
    losses = DualStudent(students, WITHOUT_THRESHOLD).losses(small_batch(), ramp=1.0)
    torch.autograd.backward(losses[own].terms[term])
    actually_reached = {
        (number, part) for number, student in enumerate(students) for part in reached_parts(student)
    }
    assert actually_reached == {(own, part) for part in reached}


@pytest.mark.parametrize("count", [0, 1, 3])
def test_wrong_number_of_students_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match=rf"dual-student .*2 student.* {count}$"):
        DualStudent([small_network(number) for number in range(count)])


def test_both_students_are_evaluated_in_their_order(students: list[DigitsCNN]) -> None:
    evaluated = DualStudent(students).evaluated
    assert list(evaluated) == ["student1", "student2"]
    assert list(evaluated.values()) == students


@pytest.mark.parametrize("largest", [1e4, 1e18])
@pytest.mark.parametrize("distance", ["mse", "kl"])
def test_extreme_logits_give_finite_losses_and_gradients(largest: float, distance: str) -> None:
    with seeded_rng("extreme logits"):
        choices = torch.tensor([-largest, 0.0, largest])
        logits = [choices[torch.randint(3, (32, 4))].requires_grad_() for _ in range(6)]
    left = TwoPasses(Prediction(logits[0], logits[1], torch.empty(0)), logits[2])
    right = TwoPasses(Prediction(logits[3], logits[4], torch.empty(0)), logits[5])
    labels = torch.arange(32) % 5 - 1
    settings = DualStudentSettings(distance="mse" if distance == "mse" else "kl")
    for student, other in [(left, right), (right, left)]:
        loss = student_loss(student, other, labels, labels < 0, settings, ramp=1.0)
        own = (student.own.class_logits, student.own.consistency_logits)
        assert loss.terms["stabilization"] > 0
        assert loss.total.isfinite()
        for gradient in torch.autograd.grad(loss.total, own):
            assert gradient.isfinite().all()


def test_students_in_the_same_state_are_refused() -> None:
    student = DigitsCNN()
    for pair in ([student, student], [student, copy.deepcopy(student)]):
        with pytest.raises(ValueError, match="students 1 and 2 "):
            DualStudent(pair)
