"""The page shows what the functions of ``calibration`` compute."""

import pytest
import torch

from dualstudent.calibration import (
    confusion_matrix,
    coverage_curve,
    expected_calibration_error,
    fit_temperature,
    recalibrate,
)
from dualstudent.report.page.evaluation import evaluate
from dualstudent.report.page.page import render_page
from tests.support.run_data import data_of, make_evaluation, make_run_data, said

CLASSES = ("cat", "dog", "emu")


def test_every_percent_of_coverage_is_the_first_point_that_reaches_it() -> None:
    answers, truth = said(37, 3)
    predicted = answers.add_truth(truth)
    found = evaluate(answers, data_of(truth, CLASSES), "s", ["s"], False, 5).coverage

    confidence, right = predicted.confidence.tolist(), predicted.correct.tolist()
    for percent, point in enumerate(found, start=1):
        accepted = [r for c, r in zip(confidence, right, strict=True) if c >= point.threshold]
        assert len(accepted) / 37 >= percent / 100
        assert point.accuracy == pytest.approx(sum(accepted) / len(accepted))
        surer = [c for c in confidence if c > point.threshold]
        assert len(surer) / 37 < percent / 100
    assert found[-1] == coverage_curve(predicted)[-1]


def test_it_is_what_trust_says_and_a_temperature_only_if_asked_for() -> None:
    answers, truth = said(500, 3)
    predicted = answers.add_truth(truth)
    plain, fitted = (
        evaluate(answers, data_of(truth, CLASSES), "s", ["s", "t"], wanted, 5)
        for wanted in (False, True)
    )
    assert torch.equal(plain.matrix, confusion_matrix(predicted))
    assert plain.calibration.error == expected_calibration_error(predicted)
    assert (plain.temperature, plain.calibrated) == (None, None)
    temperature = fit_temperature(predicted)
    assert fitted.temperature == temperature
    assert fitted.calibrated is not None
    expected = expected_calibration_error(recalibrate(predicted, temperature))
    assert fitted.calibrated.error == expected
    assert plain.stable.coverage == predicted.stable.sum().item() / 500
    stable = predicted.labels[predicted.stable].tolist()
    assert plain.stable_counts == [stable.count(label) for label in range(3)]


def test_a_set_without_mistakes_has_no_temperature() -> None:
    answers, _ = said(50, 3)
    truth = answers.probabilities.argmax(dim=1)
    evaluation = evaluate(answers, data_of(truth, CLASSES), "s", ["s"], True, 5)
    assert evaluation.temperature is None


def test_samples_that_cannot_be_read_are_counted() -> None:
    answers, truth = said(40, 3)
    more = torch.cat([truth, truth[:2]])
    evaluation = evaluate(answers, data_of(more, CLASSES), "s", ["s"], False, 5)
    assert (evaluation.samples, evaluation.unreadable) == (40, 2)


@pytest.mark.parametrize("classes", [10, 1000])
def test_100k_images_make_a_page_below_10_megabytes(classes: int) -> None:
    names = tuple(f"class {number}" for number in range(classes))
    samples = 100_000 if classes == 10 else 2_000
    evaluation = make_evaluation(samples, names, side=96)
    runs = [make_run_data(name, evaluation, names, epochs=600) for name in ("one", "two", "three")]
    assert evaluation.samples == samples
    assert len(render_page(runs).encode()) < 10_000_000
