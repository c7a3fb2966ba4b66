import copy
from collections import Counter
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dualstudent import resume, train
from dualstudent.batch import Batch
from dualstudent.generators import seeded_rng
from dualstudent.methods import DNLL, DNLLSettings, DualStudent, DualStudentSettings, Task
from dualstudent.methods.dnll import _compute_negative_loss, draw_negatives
from dualstudent.signals import Interrupted
from tests.support.fixed_student import FixedStudent, fixed_batch
from tests.support.linear_student import Array, probabilities
from tests.support.recipes import small_recipe
from tests.support.runs import RaisesSignalAt, assert_equal_runs
from tests.support.students import reached_parts, small_batch, small_network

START = 75 * exp(-5)  # the weight in the first epoch


def begun(students: list[Any], **settings: Any) -> DNLL:
    method = DNLL(students, DNLLSettings(**settings))
    method.begin(Task(9, 16, 3, (1, 4, 4), value_range=1))
    return method


def negative_terms(students: list[FixedStudent], labels: list[int]) -> list[float]:
    losses = begun(students).losses(fixed_batch(labels), ramp=1.0)
    return [loss.terms["negative_labels"].item() for loss in losses]


# Each as (class head, consistency head) for view 1 and view 2, with ξ = 0.8 and two classes, so
# that the negative class is the one that the source does not answer.
UNSURE = ((0.6, 0.55), (0.3, 0.45))
STEADY = ((0.95, 0.9), (0.9, 0.9))
SHAKY = ((0.95, 0.7), (0.9, 0.75))


def weight(p: float) -> float:
    return -START * log(1 - p + 1e-6)


def test_unstable_students_tell_each_other_what_a_sample_is_not() -> None:
    left, right = FixedStudent(*UNSURE), FixedStudent((0.7, 0.65), (0.6, 0.35))
    # The right one says for view 1, which is not its own, 0.7: the first class, so not the second.
    # The left one says for view 2 0.3: the second class, so not the first.
    expected = [weight(1 - 0.55), weight(0.35)]
    assert negative_terms([left, right], [-1, -1]) == pytest.approx(expected, rel=1e-6)


def test_the_stable_student_is_told_by_the_unstable_one_and_not_the_other_way() -> None:
    told, silent = negative_terms([FixedStudent(*STEADY), FixedStudent(*UNSURE)], [-1])
    assert told == pytest.approx(weight(1 - 0.9), rel=1e-6)
    assert silent == 0


def test_of_two_stable_students_the_loser_tells_the_winner() -> None:
    told, silent = negative_terms([FixedStudent(*STEADY), FixedStudent(*SHAKY)], [-1])
    assert told == pytest.approx(weight(1 - 0.9), rel=1e-6)
    assert silent == 0
    silent, told = negative_terms([FixedStudent(*SHAKY), FixedStudent(*STEADY)], [-1])
    assert told == pytest.approx(weight(1 - 0.9), rel=1e-6)
    assert silent == 0


def test_labeled_samples_are_left_out_and_the_mean_is_over_those_told() -> None:
    students = [FixedStudent(*UNSURE), FixedStudent((0.7, 0.65), (0.6, 0.35))]
    alone = negative_terms(students, [-1])
    assert negative_terms(students, [-1, 0, 1, 1]) == pytest.approx(alone, rel=1e-12)
    assert negative_terms(students, [0, 1]) == [0, 0]


def answers(logits: torch.Tensor) -> Array:
    return probabilities(logits.detach().double().numpy())


def test_two_negatives_are_drawn_for_each_sample_and_their_mean_counts() -> None:
    """With a threshold of almost 1 no student is stable, so all samples are told."""
    students, batch = [small_network(0), small_network(1)], small_batch()
    method = begun(copy.deepcopy(students), confidence_threshold=0.999)
    torch.manual_seed(5)
    losses = method.losses(batch, ramp=1.0)
    torch.manual_seed(5)
    own = [students[0](batch.views[0]), students[1](batch.views[1])]
    other = [students[0](batch.views[1]), students[1](batch.views[0])]
    for student, source, loss in zip((0, 1), (1, 0), losses, strict=True):
        p = answers(own[student].consistency_logits)
        says = answers(other[source].class_logits).argmax(axis=1)
        drawn = torch.randint(2, (16, 2)).numpy()
        means = []
        for row in range(12):
            allowed = [c for c in range(3) if c != says[row]]
            classes = {allowed[number] for number in drawn[row]}
            means.append(np.mean([-np.log(1 - p[row, k] + 1e-6) for k in classes]))
        found = loss.terms["negative_labels"].item()
        assert found == pytest.approx(START * np.mean(means), rel=1e-4)


def test_negatives_are_drawn_evenly_from_all_classes_but_the_answer() -> None:
    p = torch.tensor([[0.1, 0.7, 0.1, 0.1]]).repeat(3000, 1)
    with seeded_rng("negatives"):
        drawn = draw_negatives(p)
    sizes = Counter(drawn.sum(dim=1).tolist())
    assert not drawn[:, 1].any()
    assert set(sizes) == {1, 2}
    assert sizes[1] / 3000 == pytest.approx(1 / 3, abs=0.05)  # the same class twice
    assert drawn.double().mean(dim=0)[[0, 2, 3]].tolist() == pytest.approx([5 / 9] * 3, abs=0.05)


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(0, START), (10, 75 * exp(-5 * 0.9**2)), (14, 75 * exp(-5 * 0.86**2)), (15, 2), (200, 2)],
)
def test_the_weight_rises_until_it_is_2(epoch: int, expected: float) -> None:
    students = [FixedStudent(*STEADY), FixedStudent(*UNSURE)]
    method = begun(students)
    if epoch:
        method.after_epoch(epoch - 1, [])
    (loss, _) = method.losses(fixed_batch([-1]), ramp=0.0)
    found = loss.terms["negative_labels"].item() / weight(1 - 0.9) * START
    assert found == pytest.approx(expected, rel=1e-6)


def test_the_other_terms_are_those_of_dual_student() -> None:
    students = [small_network(0), small_network(1)]
    batch = small_batch()
    plain = DualStudent(copy.deepcopy(students), DualStudentSettings(confidence_threshold=0.4))
    method = begun(students, confidence_threshold=0.4)
    pairs = zip(method.losses(batch, 0.5), plain.losses(batch, 0.5), strict=True)
    for loss, expected in pairs:
        assert loss.terms.keys() - expected.terms.keys() == {"negative_labels"}
        assert {k: loss.terms[k].item() for k in expected.terms} == {
            k: term.item() for k, term in expected.terms.items()
        }


@pytest.mark.parametrize("own", [0, 1])
def test_negatives_reach_the_consistency_head_of_the_student_only(own: int) -> None:
    students = [small_network(0), small_network(1)]
    losses = begun(students).losses(small_batch(), ramp=1.0)
    torch.autograd.backward(losses[own].terms["negative_labels"])
    assert reached_parts(students[own]) == {"trunk", "consistency head"}
    assert reached_parts(students[1 - own]) == set()


def test_a_stopped_run_continues_bit_for_bit(tmp_path: Path) -> None:
    recipe = small_recipe("method.name=dnll")
    whole = train(recipe, tmp_path / "whole")
    with pytest.raises(Interrupted):
        train(recipe, tmp_path / "run", RaisesSignalAt(40))
    assert_equal_runs(resume(tmp_path / "run"), whole)


def test_extreme_logits_give_finite_losses() -> None:
    batch = Batch((torch.zeros(2, 1), torch.ones(2, 1)), torch.tensor([-1, -1]))
    sure = FixedStudent((1 - 1e-12, 1 - 1e-12), (0.5, 0.5))
    for loss in begun([sure, FixedStudent(*UNSURE)]).losses(batch, ramp=1.0):
        assert loss.total.isfinite()


def test_half_precision_gives_finite_losses() -> None:
    logits = torch.tensor([[0.0, 30.0], [0.0, 9.0]], dtype=torch.bfloat16, requires_grad=True)
    loss = _compute_negative_loss(logits, torch.tensor([[False, True], [False, True]]))
    expected = [-log(1e-6), log(1 + exp(9))]
    assert loss.tolist() == pytest.approx(expected, rel=0.02)
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    assert gradient.isfinite().all()
