"""``label_smoothing`` is a setting of every method, and has the same meaning in each."""

from typing import Any

import numpy as np
import pytest
import torch

from dualstudent.batch import Batch
from dualstudent.methods import (
    ICT,
    METHODS,
    SHOT,
    Method,
    MixMatch,
    Task,
    ict,
    mixmatch,
    soft_pseudo_labels,
)
from dualstudent.networks.digits_cnn import DigitsCNNSettings
from tests.support.linear_student import LinearSoftmax, linear_batch, probabilities

LABELS = [-1, -1, 2, 0, -1, 1]
CLASSES = 3


def build(kind: type[Method], label_smoothing: float) -> Method:
    needed = kind.Settings.model_fields.keys() & {"strong_network"}
    values: dict[str, Any] = {key: DigitsCNNSettings() for key in needed}
    settings = kind.Settings(label_smoothing=label_smoothing, **values)
    method = kind([LinearSoftmax(n) for n in range(settings.student_count)], settings)
    method.begin(Task(200, len(LABELS), CLASSES, (5,), value_range=1e6))
    return method


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("kind", METHODS, ids=lambda kind: kind.__name__)
def test_a_share_of_each_label_is_spread_over_all_classes(
    kind: type[Method], smoothing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (ict, mixmatch, soft_pseudo_labels):  # mixtures of one
        monkeypatch.setattr(module, "draw_shares", lambda count, *_, **__: torch.ones(count))
    method, points = build(kind, smoothing), linear_batch(LABELS)
    batch = Batch((points.views[0], points.views[0]), points.labels)
    found = [loss.terms["classification"].item() for loss in method.losses(batch, ramp=1.0)]

    usual = "labeled" if kind in (ICT, MixMatch, SHOT) else "batch"  # those without the setting
    average = getattr(method.settings, "classification_average", usual)
    rows = [row for row, label in enumerate(LABELS) if label >= 0]
    target = np.full((len(rows), CLASSES), smoothing / CLASSES)
    target[range(len(rows)), [LABELS[row] for row in rows]] += 1 - smoothing
    for student, value in zip(method.students, found, strict=True):
        assert isinstance(student, LinearSoftmax)
        p = probabilities(points.views[0].numpy()[rows] @ student.w.T)
        total = -(target * np.log(p)).sum()
        assert value == pytest.approx(total / (6 if average == "batch" else 3), rel=1e-9)
