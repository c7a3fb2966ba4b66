"""What a page shows of answers equals what the functions of trust say of all of them."""

import pytest
import torch

from dualstudent.calibration import (
    confusion_matrix,
    coverage_curve,
    expected_calibration_error,
    fit_temperature,
    recalibrate,
)
from dualstudent.report.page.page import render
from dualstudent.report.page.verdict import judge
from tests.support.evidence import data_of, evidence_of, said, verdict_of

CLASSES = ("cat", "dog", "emu")


def test_every_percent_of_coverage_is_the_first_point_that_reaches_it() -> None:
    answers, truth = said(37, 3)
    predicted = answers.add_truth(truth)
    found = judge(answers, data_of(truth, CLASSES), "s", ["s"], False, 5).coverage

    confidence, right = predicted.confidence.tolist(), predicted.correct.tolist()
    for percent, point in enumerate(found, start=1):
        believed = [r for c, r in zip(confidence, right, strict=True) if c >= point.threshold]
        assert len(believed) / 37 >= percent / 100
        assert point.accuracy == pytest.approx(sum(believed) / len(believed))
        surer = [c for c in confidence if c > point.threshold]
        assert len(surer) / 37 < percent / 100
    assert found[-1] == coverage_curve(predicted)[-1]


def test_it_is_what_trust_says_and_a_temperature_only_if_asked_for() -> None:
    answers, truth = said(500, 3)
    predicted = answers.add_truth(truth)
    plain, tempered = (
        judge(answers, data_of(truth, CLASSES), "s", ["s", "t"], wanted, 5)
        for wanted in (False, True)
    )
    assert torch.equal(plain.matrix, confusion_matrix(predicted))
    assert plain.calibration.error == expected_calibration_error(predicted)
    assert (plain.temperature, plain.tempered) == (None, None)
    temperature = fit_temperature(predicted)
    assert tempered.temperature == temperature
    assert tempered.tempered is not None
    expected = expected_calibration_error(recalibrate(predicted, temperature))
    assert tempered.tempered.error == expected
    assert plain.stable.coverage == predicted.stable.sum().item() / 500
    stable = predicted.labels[predicted.stable].tolist()
    assert plain.stable_counts == [stable.count(label) for label in range(3)]


def test_a_set_without_mistakes_has_no_temperature() -> None:
    answers, _ = said(50, 3)
    truth = answers.probabilities.argmax(dim=1)
    verdict = judge(answers, data_of(truth, CLASSES), "s", ["s"], True, 5)
    assert verdict.temperature is None


def test_samples_that_cannot_be_read_are_counted() -> None:
    answers, truth = said(40, 3)
    more = torch.cat([truth, truth[:2]])
    verdict = judge(answers, data_of(more, CLASSES), "s", ["s"], False, 5)
    assert (verdict.samples, verdict.unreadable) == (40, 2)


@pytest.mark.parametrize("classes", [10, 1000])
def test_100k_images_make_a_page_below_10_megabytes(classes: int) -> None:
    names = tuple(f"class {number}" for number in range(classes))
    samples = 100_000 if classes == 10 else 2_000
    verdict = verdict_of(samples, names, side=96)
    runs = [evidence_of(name, verdict, names, epochs=600) for name in ("one", "two", "three")]
    assert verdict.samples == samples
    assert len(render(runs).encode()) < 10_000_000
