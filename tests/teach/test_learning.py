"""What is learned from few labels, how it is judged, and what is asked for."""

import numpy as np
import pytest
import torch

from dualstudent.data.sources.bundled import load_digits_8x8
from dualstudent.teach.estimate import Estimate, find_trust, forecast_labels
from dualstudent.teach.learning import Answer, Learner, Question, Superseded, combine, find_doubt
from dualstudent.teach.questions import SHARE, arrange_questions
from dualstudent.trunks.patches import PatchFeatures

IMAGES = 600
CLASSES = tuple("0123456789")


@pytest.fixture(scope="module")
def truth() -> list[int]:
    found: list[int] = load_digits_8x8("train").labels[:IMAGES].tolist()
    return found


@pytest.fixture(scope="module")
def learner() -> Learner:
    pixels = load_digits_8x8("train").pixels[:IMAGES].float() / 255
    large = torch.nn.functional.interpolate(pixels, (16, 16), mode="bilinear")
    learner = Learner(uses_line=False)
    learner.use(np.arange(IMAGES) + 1000, PatchFeatures(large)(large))
    return learner


def ask(learner: Learner, labels: dict[int, int], sample: set[int], version: int = 1) -> Answer:
    everything = {number + 1000 for number in range(IMAGES)}
    askable = frozenset(everything - labels.keys() - sample)
    known = frozenset(sample & labels.keys())
    return learner.learn(Question(version, labels, CLASSES, known, askable))


def answer_all(learner: Learner, truth: list[int], count: int) -> tuple[dict[int, int], Answer]:
    sample = set(range(1000, 1000 + IMAGES // 4))
    labels: dict[int, int] = {}
    found = ask(learner, labels, sample)
    while len(labels) < count:
        left = sorted(sample - labels.keys())
        done = len(sample) - len(left)
        for number in arrange_questions(found.order, left, len(labels), done, 10):
            labels[number] = truth[number - 1000]
        found = ask(learner, labels, sample, len(labels))
    return labels, found


@pytest.mark.learns
def test_it_learns_from_what_it_asks_for(learner: Learner, truth: list[int]) -> None:
    labels, found = answer_all(learner, truth, 60)
    others = [i for i, number in enumerate(found.numbers.tolist()) if number not in labels]
    right = (found.predicted == np.array(truth))[others].mean()
    assert right > 0.8  # 0.95 on both CPUs
    assert found.estimate is not None
    assert found.estimate.measured == 60 // SHARE
    assert found.estimate.low <= right <= found.estimate.high
    assert not set(found.order) & labels.keys()
    assert all(number >= 1000 + IMAGES // 4 for number in found.order)  # none of the sample


def test_a_label_does_not_judge_itself(learner: Learner, truth: list[int]) -> None:
    """Whatever label an image has, the model that judges it says the same."""
    rng = np.random.default_rng(0)
    labels = {int(n) + 1000: truth[n] for n in rng.permutation(IMAGES)[:50]}
    known = np.array(sorted(labels)) - 1000
    given = np.full(IMAGES, -1)
    given[known] = np.array(truth)[known]
    in_sample = np.arange(len(known)) % 4 == 0
    before = learner._judge(given, known, in_sample, 10, lambda: None)
    for place in (0, 7, 28):
        changed = given.copy()
        changed[known[place]] = (given[known[place]] + 1) % 10
        after = learner._judge(changed, known, in_sample, 10, lambda: None)
        np.testing.assert_array_equal(after[place], before[place])
        assert not np.array_equal(after, before)


def test_while_there_are_few_of_the_sample_only_one_label_is_hidden_at_a_time(
    learner: Learner, truth: list[int]
) -> None:
    known = np.arange(40)
    given = np.full(IMAGES, -1)
    given[known] = np.array(truth)[known]
    in_sample = known % 4 == 0
    judged = learner._judge(given, known, in_sample, 10, lambda: None)
    for place in np.flatnonzero(in_sample):
        others = given.copy()
        others[known[place]] = -1
        np.testing.assert_array_equal(judged[place], learner.predict(others, 10)[known[place]])


def test_a_wrong_label_is_suspect(learner: Learner, truth: list[int]) -> None:
    labels = {number + 1000: truth[number] for number in range(150)}
    wrong = next(number for number, label in labels.items() if label == 0)
    labels[wrong] = 1
    assert (wrong, 0) in ask(learner, labels, set()).suspects
    # To look again where the model disagrees would please it where it is measured.
    assert ask(learner, labels, {wrong}).suspects == ask(learner, labels, set()).suspects[1:]


def test_of_few_labels_none_is_suspect(learner: Learner, truth: list[int]) -> None:
    labels = {number + 1000: truth[number] for number in range(25)}
    wrong = next(number for number, label in labels.items() if label == 0)
    labels[wrong] = 1
    assert ask(learner, labels, set()).suspects
    few = dict(list(labels.items())[:19])
    assert ask(learner, few, set()).suspects == ()
    classes = {label: number for number, label in labels.items()}
    alone = {number for label, number in classes.items() if [*labels.values()].count(label) == 1}
    assert not alone & {number for number, _ in ask(learner, labels, set()).suspects}


def test_before_there_are_two_classes_images_are_spread(learner: Learner, truth: list[int]) -> None:
    found = ask(learner, {}, set())
    assert len(found.predicted) == 0
    assert len({truth[number - 1000] for number in found.order}) >= 8  # of 30 images; 10 here
    again = ask(learner, {found.order[0]: 3}, set())
    assert again.order == found.order[1:]
    assert len(again.predicted) == 0


def test_newer_labels_end_it(learner: Learner, truth: list[int]) -> None:
    labels = {number + 1000: truth[number] for number in range(20)}

    def check() -> None:
        raise Superseded

    with pytest.raises(Superseded):
        learner.learn(Question(1, labels, CLASSES, frozenset(), frozenset({1100})), check)


def test_when_everything_is_labeled_there_is_no_question(
    learner: Learner, truth: list[int]
) -> None:
    found = ask(learner, {number + 1000: label for number, label in enumerate(truth)}, set())
    assert found.order == ()
    assert found.labels == IMAGES


def test_doubt_and_the_mean_of_two_opinions() -> None:
    p = np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.6, 0.3, 0.1]])
    np.testing.assert_allclose(find_doubt(p), [1.0, 0.0, 0.49])
    mixed = combine(np.array([[0.8, 0.2]]), np.array([[0.2, 0.8]]))
    np.testing.assert_allclose(mixed, [[0.5, 0.5]])
    np.testing.assert_allclose(combine(p, p).sum(axis=1), 1)


def test_the_sample_is_mixed_in_evenly() -> None:
    chosen, sample = list(range(100)), list(range(1000, 1030))
    found = arrange_questions(chosen, sample, asked=0, sampled=0, count=40)
    assert sum(number >= 1000 for number in found) == 40 // SHARE
    assert all(sum(n >= 1000 for n in found[i : i + SHARE]) <= 2 for i in range(36))
    pieces, asked, sampled = list[int](), 0, 0
    while asked < 40:  # piece by piece it is the same
        (number,) = arrange_questions(chosen, sample, asked, sampled, count=1)
        (sample if number >= 1000 else chosen).remove(number)
        pieces.append(number)
        asked, sampled = asked + 1, sampled + (number >= 1000)
    assert pieces == found
    assert arrange_questions([], [1, 2], 0, 0, 5) == [1, 2]
    assert arrange_questions([1], [], 10, 0, 5) == [1]


def test_an_estimate_needs_ten_images_and_has_wilsons_interval() -> None:
    assert Estimate.count(9, np.ones(9, bool)) is None
    found = Estimate.count(40, np.array([True] * 16 + [False] * 4))
    assert found is not None
    assert (found.correct, found.measured, found.labels) == (16, 20, 40)
    assert found.low == pytest.approx(0.5840, abs=1e-4)  # statsmodels: proportion_confint(wilson)
    assert found.high == pytest.approx(0.9193, abs=1e-4)


def test_trust_needs_twenty_right_answers() -> None:
    sure = np.column_stack([np.linspace(0.6, 1, 40), np.linspace(0.4, 0, 40)])
    truth = np.array([1] * 10 + [0] * 30)
    found = find_trust(sure, truth, 0.95)
    assert found is not None
    assert (found.correct, found.accepted) == (30, 31)
    assert find_trust(sure[:19], truth[:19], 0.5) is None


def test_a_forecast_is_made_only_if_the_error_falls() -> None:
    def points(*shares: float) -> list[Estimate]:
        labels = (20, 40, 80, 160, 320)
        return [
            Estimate(n, 200, round(200 * share), 0, 1)
            for n, share in zip(labels, shares, strict=False)
        ]

    halved = points(0.6, 0.7, 0.78, 0.84)  # the error falls by about 0.73 per doubling
    found = forecast_labels(halved, 0.9)
    assert found is not None
    assert 160 < found[0] <= found[1] < 640  # by hand: 160 · 2^(log(0.1 / 0.16) / log(0.73)) − 160
    assert forecast_labels(halved, 0.84) is None  # reached
    assert forecast_labels(halved, 0.99) is None  # too far
    assert forecast_labels(halved[:3], 0.9) is None
    assert forecast_labels(points(0.7, 0.7, 0.69, 0.7), 0.9) is None
