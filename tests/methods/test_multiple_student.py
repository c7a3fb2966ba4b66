from collections import Counter
from itertools import combinations
from math import sqrt
from pathlib import Path

import pytest
import torch

from dualstudent import UserError, load_recipe, resume, train
from dualstudent.generators import seeded_rng
from dualstudent.methods import DualStudent, MultipleStudent, MultipleStudentSettings
from dualstudent.methods.multiple_student import draw_pairs
from dualstudent.signals import Interrupted
from tests.support.fixed_student import FixedStudent, fixed_batch
from tests.support.recipes import small_recipe
from tests.support.runs import RaisesSignalAt, assert_equal_runs
from tests.support.students import Recorder, reached_parts, small_batch, small_network


def test_all_pairs_and_views_are_equally_likely() -> None:
    count, draws = 6, 6000
    pairs: Counter[frozenset[int]] = Counter()
    with_view1: Counter[int] = Counter()
    with seeded_rng("pairing"):
        for _ in range(draws):
            pairing = draw_pairs(count)
            assert sorted(number for pair in pairing for number in pair) == list(range(count))
            pairs.update(frozenset(pair) for pair in pairing)
            with_view1.update(first for first, _ in pairing)
    # Each student has one of five others as its partner, and either view.
    assert set(pairs) == {frozenset(pair) for pair in combinations(range(count), 2)}
    for times in pairs.values():
        assert abs(times - draws / 5) < 4 * sqrt(draws * 0.2 * 0.8)
    for number in range(count):
        assert abs(with_view1[number] - draws / 2) < 4 * sqrt(draws * 0.25)


def test_both_views_are_equally_likely_within_every_pair() -> None:
    with seeded_rng("pairing"):
        draws = [draw_pairs(2) for _ in range(2000)]
    assert abs(draws.count([(0, 1)]) - 1000) < 4 * sqrt(2000 * 0.25)


def test_pairs_are_a_function_of_the_global_seed_and_change_from_draw_to_draw() -> None:
    def drawn() -> list[list[tuple[int, int]]]:
        with seeded_rng("step"):
            return [draw_pairs(8) for _ in range(5)]

    assert drawn() == drawn()
    assert len({tuple(pairing) for pairing in drawn()}) == 5


def test_each_student_learns_from_its_partner_on_the_view_it_was_given() -> None:
    """Fixed students reveal by the value of their loss who they were compared with."""
    says = [0.55, 0.7, 0.9, 0.97]  # on both views and by both heads: all are equally steady
    settings = MultipleStudentSettings(confidence_threshold=0.8)
    method = MultipleStudent([FixedStudent((p, p), (p, p)) for p in says], settings)
    for seed in range(20):
        torch.manual_seed(seed)
        partner: dict[int, int] = {}
        for first, second in draw_pairs(4):
            partner |= {first: second, second: first}
        torch.manual_seed(seed)
        losses = method.losses(fixed_batch([-1]), ramp=1.0)
        for number, loss in enumerate(losses):
            p, guide = says[number], says[partner[number]]
            # Only those who are unsure follow, and only those who are sure are followed.
            expected = 100 * (p - guide) ** 2 if p < 0.8 < guide else 0.0
            actual = loss.terms["stabilization"].item()
            assert actual == pytest.approx(expected, rel=1e-12), (seed, number)


def test_pairs_drawn_before_a_step_hold_for_that_step_only() -> None:
    """Processes draw them from the same random state, and their losses from different ones."""
    students, batch = [small_network(number) for number in range(4)], small_batch()
    method = MultipleStudent(students, MultipleStudentSettings(confidence_threshold=0.0))

    def losses(*, drawn_by: int | None, seed: int) -> list[float]:
        if drawn_by is not None:
            torch.manual_seed(drawn_by)
            method.before_step()
        torch.manual_seed(seed)
        return [loss.total.item() for loss in method.losses(batch, ramp=1.0)]

    pairings = {}
    for seed in range(20):  # any two seeds whose pairs differ
        torch.manual_seed(seed)
        pairings[seed] = draw_pairs(4)
    other = next(seed for seed in pairings if pairings[seed] != pairings[0])
    assert losses(drawn_by=0, seed=other) == losses(drawn_by=None, seed=0)
    assert losses(drawn_by=None, seed=other) != losses(drawn_by=None, seed=0)


def test_each_pair_is_a_dual_student() -> None:
    students, batch = [small_network(number) for number in range(4)], small_batch()
    settings = MultipleStudentSettings(confidence_threshold=0.0)
    for seed in range(5):
        torch.manual_seed(seed)
        losses = MultipleStudent(students, settings).losses(batch, ramp=0.5)
        torch.manual_seed(seed)
        for pair in draw_pairs(4):
            dual = DualStudent([students[number] for number in pair], settings_of_two(settings))
            for number, expected in zip(pair, dual.losses(batch, ramp=0.5), strict=True):
                actual = {name: term.item() for name, term in losses[number].terms.items()}
                assert actual == {name: term.item() for name, term in expected.terms.items()}


def settings_of_two(settings: MultipleStudentSettings) -> MultipleStudentSettings:
    return settings.model_copy(update={"students": 2})


def test_every_student_sees_both_views_once_and_one_of_them_with_gradient() -> None:
    recorders = [Recorder(small_network(number)) for number in range(4)]
    batch = small_batch()
    MultipleStudent(recorders).losses(batch, ramp=1.0)
    own_views = []
    for recorder in recorders:
        ((own, carries_gradient), (other, carries_none)) = recorder.shown
        assert carries_gradient
        assert not carries_none
        assert {id(own), id(other)} == {id(batch.views[0]), id(batch.views[1])}
        own_views.append(id(own))
    assert own_views.count(id(batch.views[0])) == 2


@pytest.mark.parametrize("own", range(4))
def test_a_loss_moves_its_own_student_only(own: int) -> None:
    students = [small_network(number) for number in range(4)]
    losses = MultipleStudent(students).losses(small_batch(), ramp=1.0)
    torch.autograd.backward(losses[own].total)
    assert [number for number in range(4) if reached_parts(students[number])] == [own]


def test_all_students_are_evaluated_in_their_order() -> None:
    students = [small_network(number) for number in range(6)]
    method = MultipleStudent(students, MultipleStudentSettings(students=6))
    assert list(method.evaluated) == method.headline == [f"student{i}" for i in range(1, 7)]
    assert list(method.evaluated.values()) == students


@pytest.mark.parametrize(
    ("students", "message"),
    [("3", "multiple of 2"), ("0", "greater than or equal to 2"), ("-2", "greater than")],
)
def test_an_odd_number_of_students_or_none_is_refused_in_one_line(
    students: str, message: str
) -> None:
    changes = ["method.name=multiple-student", f"method.students={students}"]
    with pytest.raises(UserError, match=rf"method\.students = {students}: .*{message}") as error:
        load_recipe("digits", changes)
    assert "\n" not in str(error.value)


def test_a_stopped_run_continues_bit_for_bit(tmp_path: Path) -> None:
    recipe = small_recipe(
        "method.name=multiple-student", "method.confidence_threshold=0.5", "schedule.epochs=1"
    )
    whole = train(recipe, tmp_path / "whole")
    with pytest.raises(Interrupted):
        train(recipe, tmp_path / "stopped", RaisesSignalAt(11))
    assert_equal_runs(resume(tmp_path / "stopped"), whole)
