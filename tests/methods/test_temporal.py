from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dualstudent import resume, train
from dualstudent.batch import Batch
from dualstudent.generators import seeded_rng
from dualstudent.methods import Task, TemporalEnsembling, TemporalEnsemblingSettings, temporal
from dualstudent.prediction import Prediction
from dualstudent.signals import Interrupted
from tests.support.recipes import small_recipe
from tests.support.runs import RaisesSignalAt, assert_equal_runs

SAMPLES, CLASSES = 7, 4


class Table(nn.Module):
    """A student with given class logits and a trainable consistency head."""

    def __init__(self) -> None:
        super().__init__()
        with seeded_rng("table"):
            self.consistency = nn.Parameter(torch.randn(SAMPLES, CLASSES))
        self.answers = torch.zeros(SAMPLES, CLASSES)

    def forward(self, view: Tensor) -> Prediction:
        indices = view.flatten().long()
        return Prediction(self.answers[indices].log(), self.consistency[indices], torch.empty(0))


def method_with_memory(**settings: Any) -> tuple[TemporalEnsembling, Table]:
    table = Table()
    method = TemporalEnsembling([table], TemporalEnsemblingSettings(**settings))
    method.begin(Task(9, SAMPLES, CLASSES, image_shape=(1, 1, 1), value_range=1))
    return method, table


def batch_of(rows: Sequence[int]) -> Batch:
    indices = torch.tensor(rows)
    view, labels = indices[:, None, None, None].float(), torch.full_like(indices, -1)
    return Batch((view, view), labels, labels < 0, indices)


def random_answers(*purpose: int) -> Tensor:
    with seeded_rng("answers", *purpose):
        return (3 * torch.randn(SAMPLES, CLASSES)).softmax(dim=1)


def target_of(method: TemporalEnsembling, indices: Sequence[int]) -> NDArray[Any]:
    batch = batch_of(indices)
    prediction: Prediction = method.students[0](batch.views[0])
    return method.target(batch, prediction).numpy()


# What is seen in each epoch, batch by batch: sample 6 comes late, 3 and 5 are missed at
# times, and 0, 1 are seen again and again, as labeled samples are.
EPOCHS = [
    [[0, 1, 2], [0, 3, 4], [5, 1, 0]],
    [[2, 0, 1], [1, 4, 0]],
    [[6, 3, 1], [5, 4, 2], [0, 1, 0]],
    *[[[0, 1, 2], [3, 5, 6]]] * 30,
]


@pytest.mark.parametrize("decay", [0.0, 0.6, 0.9])
def test_targets_are_the_corrected_average_of_past_epochs(
    decay: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(temporal, "_ROWS_AT_A_TIME", 3)
    method, table = method_with_memory(decay=decay)
    average, times = np.zeros((SAMPLES, CLASSES)), np.zeros(SAMPLES)
    for epoch, batches in enumerate(EPOCHS):
        latest: dict[int, NDArray[Any]] = {}
        for step, indices in enumerate(batches):
            table.answers = random_answers(epoch, step)
            method.losses(batch_of(indices), ramp=1.0)
            latest |= {sample: table.answers[sample].numpy() for sample in indices}
        method.after_epoch(epoch, [])
        for sample, answer in latest.items():
            average[sample] = decay * average[sample] + (1 - decay) * answer.astype(float)
            times[sample] += 1
        seen = np.flatnonzero(times)
        expected = average[seen] / (1 - decay ** times[seen, None])
        np.testing.assert_allclose(target_of(method, seen.tolist()), expected, atol=1.5e-3)


def test_targets_stay_the_same_within_an_epoch() -> None:
    method, table = method_with_memory()
    table.answers = random_answers(0)
    method.losses(batch_of([0, 1]), ramp=1.0)
    method.after_epoch(0, [])
    before = target_of(method, [0, 1])
    table.answers = random_answers(1)
    method.losses(batch_of([0, 1]), ramp=1.0)
    np.testing.assert_array_equal(target_of(method, [0, 1]), before)
    method.after_epoch(1, [])
    assert np.abs(target_of(method, [0, 1]) - before).max() > 0.01


def test_a_sample_without_a_past_is_not_constrained() -> None:
    method, table = method_with_memory()
    table.answers = random_answers(0)
    method.losses(batch_of([0, 1]), ramp=1.0)
    method.after_epoch(0, [])
    (loss,) = method.losses(batch_of([0, 2, 1, 3]), ramp=1.0)
    term = loss.terms["consistency"]
    followed = table.consistency.detach()[:2].softmax(dim=1).numpy()
    half = table.answers[:2].numpy().astype(np.float16).astype(float)
    expected = 30 * ((followed - half) ** 2).sum() / CLASSES / 4
    assert term.item() == pytest.approx(expected, rel=1e-5)
    torch.autograd.backward(term)
    assert table.consistency.grad is not None
    assert [bool(row.any()) for row in table.consistency.grad] == [True] * 2 + [False] * 5


def test_nothing_is_constrained_in_the_first_epoch() -> None:
    method, table = method_with_memory()
    table.answers = random_answers(0)
    for _ in range(2):
        (loss,) = method.losses(batch_of([0, 1, 2]), ramp=1.0)
        assert loss.terms["consistency"] == 0


class AnswersByPlace(Table):
    """Returns a different prediction for each occurrence of a sample in a batch."""

    def forward(self, view: Tensor) -> Prediction:
        prediction = super().forward(view)
        return prediction._replace(class_logits=random_answers(0)[: len(view)].log())


def test_of_a_sample_twice_in_a_batch_the_last_answer_counts() -> None:
    method = TemporalEnsembling([AnswersByPlace()])
    method.begin(Task(9, SAMPLES, CLASSES, image_shape=(1, 1, 1), value_range=1))
    method.losses(batch_of([4, 2, 4, 1, 2, 4]), ramp=1.0)
    method.after_epoch(0, [])
    expected = random_answers(0)[[5, 4, 3]].numpy()
    np.testing.assert_allclose(target_of(method, [4, 2, 1]), expected, atol=5e-4)


def test_memory_per_sample_is_four_bytes_per_class_plus_five() -> None:
    method, _ = method_with_memory()
    size = sum(buffer.nbytes for buffer in method.buffers())
    assert size == SAMPLES * (4 * CLASSES + 5)
    assert {"average", "weight", "latest", "answered"} < set(method.state_dict())


# In the first epoch, right after it, and in the middle of the last.
@pytest.mark.parametrize("step", [13, 29, 47])
def test_a_stopped_run_continues_bit_for_bit(step: int, tmp_path: Path) -> None:
    recipe = small_recipe("method.name=temporal")
    whole = train(recipe, tmp_path / "whole")
    assert whole.read_metrics()[0]["loss"][0]["consistency"] == 0
    assert whole.read_metrics()[1]["loss"][0]["consistency"] > 0
    with pytest.raises(Interrupted):
        train(recipe, tmp_path / "run", RaisesSignalAt(step))
    assert_equal_runs(resume(tmp_path / "run"), whole)
