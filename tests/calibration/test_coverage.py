from dataclasses import replace

import numpy as np
import pytest
import torch

from dualstudent.calibration import CoveragePoint, agreed_point, coverage_curve, stable_point
from tests.support.predictions import made


def test_the_curve_against_numpy_threshold_by_threshold() -> None:
    predicted = made()
    p, labels = predicted.probabilities.double().numpy(), predicted.labels.numpy()
    confidence, right = p.max(axis=1), p.argmax(axis=1) == labels
    curve = coverage_curve(predicted)
    assert len(curve) < len(labels)  # there are equal confidences
    for found, threshold in zip(curve, sorted(set(confidence), reverse=True), strict=True):
        believed = confidence >= threshold
        assert found.threshold == threshold
        assert found.coverage == pytest.approx(believed.mean())
        assert found.accuracy == pytest.approx(right[believed].mean())


def test_the_steadiest_can_come_first_instead_against_numpy() -> None:
    predicted = made()
    right = predicted.probabilities.numpy().argmax(axis=1) == predicted.labels.numpy()
    moved = torch.arange(len(right)).flip(0) // 3  # three of each: believed together
    curve = coverage_curve(predicted, moved.double())
    for found, threshold in zip(curve, sorted(set(moved.tolist())), strict=True):
        believed = moved.numpy() <= threshold
        assert found.threshold is None
        assert found.coverage == pytest.approx(believed.mean())
        assert found.accuracy == pytest.approx(right[believed].mean())


def test_the_order_of_the_samples_does_not_matter() -> None:
    predicted = made()
    back = torch.arange(len(predicted.labels) - 1, -1, -1)
    turned = replace(
        predicted,
        probabilities=predicted.probabilities[back],
        labels=predicted.labels[back],
        stable=predicted.stable[back],
        agree=predicted.agree[back],
    )
    assert coverage_curve(turned) == coverage_curve(predicted)


def test_the_points_of_stability_against_numpy() -> None:
    predicted = made()
    right = predicted.probabilities.numpy().argmax(axis=1) == predicted.labels.numpy()
    stable, agree = predicted.stable.numpy(), predicted.agree.numpy()
    for found, believed in (
        (stable_point(predicted), stable),
        (agreed_point(predicted), np.logical_and(stable, agree)),
    ):
        assert found.coverage == pytest.approx(believed.mean())
        assert found.accuracy == pytest.approx(right[believed].mean())


def test_nothing_stable() -> None:
    predicted = made()
    nothing = replace(predicted, stable=torch.zeros_like(predicted.stable))
    assert stable_point(nothing) == CoveragePoint(0.0, None)
