import math

import pytest
from pydantic import ValidationError

from dualstudent import UserError, load_recipe
from dualstudent.optimization.schedules import (
    ConstantSchedule,
    CosineFractionSchedule,
    CosineSchedule,
    CyclicSchedule,
    Schedule,
)

SCHEDULE = Schedule(CosineSchedule(epochs=10, rampup_epochs=5), 0.1, steps_per_epoch=4)


def test_learning_rate_falls_along_half_a_cosine_step_by_step() -> None:
    rates = [SCHEDULE.learning_rate(step) for step in range(40)]
    assert rates == pytest.approx([0.05 * (1 + math.cos(math.pi * t / 40)) for t in range(40)])
    # The formula printed in the paper would start at 1.5 times the rate and end below zero.
    assert rates[0] == 0.1
    assert min(rates) > 0


def test_the_authors_program_has_the_same_cosine_one_epoch_later() -> None:
    """It computes ½(1 + cos(π(t − 1)/N)), with t in epochs from 0: docs/fidelity.md."""
    steps, epochs = 4, 10
    for step in range(steps * (epochs - 1)):
        later = (step + steps) / steps
        theirs = 0.1 * 0.5 * (1 + math.cos(math.pi * (later - 1) / epochs))
        assert SCHEDULE.learning_rate(step) == pytest.approx(theirs, rel=1e-12)


def test_ramp_is_constant_within_an_epoch_and_one_after_the_rampup() -> None:
    expected = [math.exp(-5 * (1 - epoch / 5) ** 2) for epoch in range(5)] + [1.0] * 5
    assert [SCHEDULE.ramp(4 * epoch) for epoch in range(10)] == pytest.approx(expected)
    for epoch in range(10):
        assert len({SCHEDULE.ramp(4 * epoch + within) for within in range(4)}) == 1


def test_no_rampup_means_full_weight_from_the_start() -> None:
    assert Schedule(CosineSchedule(epochs=1, rampup_epochs=0), 0.1, 4).ramp(0) == 1.0


def test_a_longer_cosine_is_cut_off() -> None:
    longer = Schedule(CosineSchedule(epochs=10, cosine_epochs=15), 0.1, steps_per_epoch=4)
    rates = [longer.learning_rate(step) for step in range(40)]
    assert rates == pytest.approx([0.05 * (1 + math.cos(math.pi * t / 60)) for t in range(40)])
    assert longer.total_steps == 40


def test_a_cycle_replays_its_part_of_the_cosine_again_and_again() -> None:
    settings = CyclicSchedule(epochs=10, cosine_epochs=8, cycle_from=4, cycle_length=2)
    rates = [Schedule(settings, 0.1, 3).learning_rate(step) for step in range(30)]
    first = [0.05 * (1 + math.cos(math.pi * t / 24)) for t in range(18)]
    assert rates == pytest.approx(first + 2 * first[12:])
    assert min(rates) > 0


def test_fastswa_as_published() -> None:
    """Averages from epoch 150, in cycles of 30 epochs on a cosine of 210."""
    settings = CyclicSchedule(epochs=480, cosine_epochs=210, cycle_from=150, cycle_length=30)
    rates = [Schedule(settings, 0.05, 1).learning_rate(epoch) for epoch in range(480)]
    assert rates[179] == pytest.approx(0.025 * (1 + math.cos(math.pi * 179 / 210)))
    for cycle in range(180, 480, 30):
        assert rates[cycle : cycle + 30] == rates[150:180]


def test_without_new_settings_the_rates_are_the_same_bits() -> None:
    assert [SCHEDULE.learning_rate(step) for step in range(40)] == [
        0.1 * (0.5 * (1 + math.cos(math.pi * (step / 40)))) for step in range(40)
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["schedule.cycle_from=1"], r"schedule\.cycle_length is missing"),
        (["schedule.cycle_length=1"], r"schedule\.cycle_from is missing"),
        (["schedule.cosine_epochs=19"], r"schedule\.cosine_epochs = 19: .* at least epochs = 20$"),
        (
            ["schedule.cycle_from=15", "schedule.cycle_length=6"],
            r"schedule\.cosine_epochs = None: .* 20 .*cycle_from \+ cycle_length = 21$",
        ),
        (
            [
                "schedule.cycle_from=5",
                "schedule.cycle_length=5",
                "schedule.cosine_epochs=9",
            ],
            r"schedule\.cosine_epochs = 9: .* cycle_from \+ cycle_length = 10$",
        ),
        (
            ["schedule.cycle_from=-1", "schedule.cycle_length=2"],
            r"schedule\.cycle_from = -1: [^;]*$",
        ),
        (
            ["schedule.cycle_from=1", "schedule.cycle_length=0"],
            r"schedule\.cycle_length = 0: [^;]*$",
        ),
        (["schedule.epochs=0"], r"recipe digits: schedule\.epochs = 0: input [^;]*$"),
    ],
)
def test_schedules_that_make_no_sense_are_refused(changes: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_recipe("digits", changes)


def test_a_cycle_up_to_the_very_end_of_the_cosine_is_allowed() -> None:
    changes = [f"schedule.{key}" for key in ("cosine_epochs=8", "cycle_from=5", "cycle_length=3")]
    schedule = load_recipe("digits", changes).schedule
    assert isinstance(schedule, CyclicSchedule)
    assert schedule.cycle_from == 5


def test_the_learning_rate_warms_up_in_a_straight_line_under_the_cosine() -> None:
    settings = CosineSchedule(epochs=60, warmup_epochs=2, warmup_from=0.08)
    schedule = Schedule(settings, initial_learning_rate=0.2, steps_per_epoch=100)

    def expected(step: int) -> float:
        rate = 0.2 if step >= 200 else 0.08 + 0.12 * step / 200
        return rate * 0.5 * (1 + math.cos(math.pi * step / 6000))

    for step in (0, 1, 100, 199, 200, 201, 3000, 5999):
        assert schedule.learning_rate(step) == pytest.approx(expected(step), rel=1e-12)


@pytest.mark.parametrize("settings", [{"warmup_epochs": 2}, {"warmup_from": 0.1}])
def test_a_warm_up_needs_length_and_beginning(settings: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match="warmup_epochs"):
        CosineSchedule.model_validate({"epochs": 3, **settings})


def test_a_constant_schedule_keeps_the_rate_under_a_warm_up() -> None:
    settings = ConstantSchedule(epochs=4, warmup_epochs=1, warmup_from=0.0)
    rates = [Schedule(settings, 0.1, steps_per_epoch=2).learning_rate(step) for step in range(8)]
    assert rates == pytest.approx([0.0, 0.05] + [0.1] * 6)


def test_a_fraction_of_a_cosine_stays_large() -> None:
    schedule = Schedule(CosineFractionSchedule(epochs=10), 0.03, steps_per_epoch=5)
    for step in (0, 7, 49):
        expected = 0.03 * math.cos(7 * math.pi * step / (16 * 50))
        assert schedule.learning_rate(step) == pytest.approx(expected, rel=1e-12)


def test_another_schedule_keeps_the_length_and_the_ramp() -> None:
    changed = load_recipe("usps-mnist", ["schedule.name=constant"]).schedule
    assert (changed.name, changed.epochs, changed.rampup_epochs) == ("constant", 100, 5)
