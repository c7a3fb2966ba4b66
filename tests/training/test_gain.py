"""What unlabeled images gained: its interval, and how it is said."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from dualstudent.training.gain import Gain, compute_gain, resample_mean


@pytest.mark.parametrize("values", [[-100, 0, 0, 100, 100], [0, 0, 50, 100], [7, 7, 7]])
def test_the_interval_is_that_of_all_resamples(values: list[float]) -> None:
    """Few enough values to go through every resample."""
    means = [np.mean(drawn) for drawn in product(values, repeat=len(values))]
    low, high = np.quantile(means, (0.025, 0.975), method="inverted_cdf")
    assert resample_mean(np.array(values, float)) == pytest.approx((low, high), abs=1e-9)


def test_the_interval_is_that_of_images_drawn_one_by_one() -> None:
    draw = np.random.default_rng(1)
    values = draw.choice([-100.0, -50, 0, 50, 100], 400, p=[0.05, 0.05, 0.7, 0.1, 0.1])
    means = values[draw.integers(400, size=(10_000, 400))].mean(axis=1)
    expected = np.quantile(means, (0.025, 0.975))
    found = resample_mean(values)
    assert found == pytest.approx(expected, abs=0.4)  # it is 8 wide; they differ by about 0.1
    assert resample_mean(values[::-1]) == found


def test_a_gain_is_one_sentence() -> None:
    gain = Gain("test", 2000, 12.345, 18.4, (4.0, 8.26), None, False)
    assert gain.describe() == [
        "The unlabeled images gained 6.1 points (95 % interval 4.0 to 8.3, from resampling 2,000 "
        "test images): 12.35 % error with them, 18.40 % from the labels alone."
    ]


def test_a_gain_that_may_be_chance_says_so() -> None:
    sentence = " ".join(Gain("test", 50, 10.0, 12.0, (-2.0, 6.0), None, False).describe())
    assert "gained 2.0 points (95 % interval -2.0 to 6.0, " in sentence
    assert "50 test images; this may be chance)" in sentence


def test_an_opponent_that_learned_nothing_is_no_measure() -> None:
    learned = Gain("test", 150, 16.0, 60.0, (30.0, 50.0), None, False, guess_error=88.0)
    nothing = replace(learned, labels_only_error=90.0)
    assert len(learned.describe()) == 1
    assert "train longer" in nothing.describe()[1]


def test_a_loss_says_which_model_is_used() -> None:
    lost = "lost 2.0 points (95 % interval 1.0 to 3.0, "
    chosen, why = Gain("validation", 90, 12.0, 10.0, (-3.0, -1.0), "validation", True).describe()
    assert lost in chosen
    assert why.startswith("So predict, label, export and the report use the model from the labels")
    few, why = Gain("validation", 9, 12.0, 10.0, (-9.0, 5.0), "validation", False).describe()
    assert "lost 2.0 points (95 % interval -5.0 to 9.0, " in few
    assert why.startswith("So few images cannot tell which model is better")
    tested, why = Gain("test", 90, 12.0, 10.0, (-3.0, -1.0), None, False).describe("r/labels-only")
    assert lost in tested
    assert why.startswith("Test images must not choose the model")
    assert "r/labels-only" in why


def test_labels_alone_are_used_only_if_they_are_clearly_better() -> None:
    right, wrong = np.zeros(40), np.ones(40)
    first, five, six = (np.repeat([1.0, 0.0], [count, 40 - count]) for count in (1, 5, 6))
    for errors, alone, used in (
        (wrong, right, True),
        (first, right, False),  # 1 of 40 may be chance
        (five, right, False),  # p = 2 / 2⁵ by the sign test
        (six, right, True),  # p = 2 / 2⁶
        (right, wrong, False),
        (right, right, False),
    ):
        assert compute_gain("validation", errors, alone).labels_only_used == used
        assert not compute_gain("test", errors, alone).labels_only_used
