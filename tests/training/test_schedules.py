import math

import pytest

from dualstudent.training.schedules import Schedule, ScheduleSettings

SCHEDULE = Schedule(ScheduleSettings(epochs=10, rampup_epochs=5), 0.1, steps_per_epoch=4)


def test_learning_rate_falls_along_half_a_cosine_step_by_step() -> None:
    rates = [SCHEDULE.learning_rate(step) for step in range(40)]
    assert rates == pytest.approx([0.05 * (1 + math.cos(math.pi * t / 40)) for t in range(40)])
    # The formula printed in the paper would start at 1.5 times the rate and end below zero.
    assert rates[0] == 0.1
    assert min(rates) > 0


def test_ramp_is_constant_within_an_epoch_and_one_after_the_rampup() -> None:
    expected = [math.exp(-5 * (1 - epoch / 5) ** 2) for epoch in range(5)] + [1.0] * 5
    assert [SCHEDULE.ramp(4 * epoch) for epoch in range(10)] == pytest.approx(expected)
    for epoch in range(10):
        assert len({SCHEDULE.ramp(4 * epoch + within) for within in range(4)}) == 1


def test_no_rampup_means_full_weight_from_the_start() -> None:
    assert Schedule(ScheduleSettings(epochs=1, rampup_epochs=0), 0.1, 4).ramp(0) == 1.0
