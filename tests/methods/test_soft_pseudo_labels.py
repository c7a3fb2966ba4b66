from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from dualstudent import resume, train
from dualstudent.batch import ONE_VIEW, Batch
from dualstudent.generators import seeded_rng
from dualstudent.methods import SoftPseudoLabels, SoftPseudoLabelsSettings, Task
from dualstudent.mixing import draw_shares
from dualstudent.networks import DigitsCNN
from dualstudent.signals import Interrupted
from tests.support.linear_student import Array, LinearSoftmax, probabilities
from tests.support.recipes import small_recipe
from tests.support.runs import RaisesSignalAt, assert_equal_runs
from tests.support.students import reached_parts, small_batch, small_network

SAMPLES, CLASSES = 9, 3
LABELS = np.array([-1] * 6 + [2, 0, 1])
HALF = 1e-3  # of numbers in half precision


def begun(student: nn.Module, **settings: Any) -> SoftPseudoLabels:
    method = SoftPseudoLabels([student], SoftPseudoLabelsSettings(**settings))
    method.begin(Task(9, max(SAMPLES, 16), CLASSES, (5,), value_range=1))
    return method


def batch_of(rows: list[int], step: int = 0) -> Batch:
    with seeded_rng("points", step):
        view = torch.randn(len(rows), 5, dtype=torch.float64)
    return Batch((view,), torch.from_numpy(LABELS[rows]), indices=torch.tensor(rows))


def expect(
    x: Array, rows: list[int], soft: dict[int, Array], w: Array, seed: int
) -> dict[str, float]:
    """By the definition: λ H(y₁, p) + (1 − λ) H(y₂, p), split by whether y is a true label."""
    now = probabilities(x @ w.T)
    y = [
        np.eye(3)[LABELS[r]] if LABELS[r] >= 0 else soft.get(r, now[i]) for i, r in enumerate(rows)
    ]
    true = LABELS[rows] >= 0
    torch.manual_seed(seed)
    share = draw_shares(1, 1.0).item()
    order = torch.randperm(len(rows)).numpy()
    p = probabilities((share * x + (1 - share) * x[order]) @ w.T)
    sums = {True: 0.0, False: 0.0}
    for i, j in enumerate(order):
        sums[bool(true[i])] -= share * (y[i] * np.log(p[i])).sum()
        sums[bool(true[j])] -= (1 - share) * (y[j] * np.log(p[i])).sum()
    mean = p.mean(axis=0)
    return {
        "classification": sums[True] / len(rows),
        "pseudo_labels": sums[False] / len(rows),
        "balance": 0.8 * float((np.log(1 / 3 / mean) / 3).sum()),
        "entropy": 0.4 * float(-(p * np.log(p)).sum(axis=1).mean()),
    }


def found(method: SoftPseudoLabels, batch: Batch, seed: int) -> dict[str, float]:
    torch.manual_seed(seed)
    (loss,) = method.losses(batch, ramp=0.0)  # it has no ramp
    return {name: term.item() for name, term in loss.terms.items()}


def test_labels_are_the_predictions_of_the_epoch_before() -> None:
    student = LinearSoftmax(0)
    method = begun(student)
    soft: dict[int, Array] = {}
    # Sample 5 is missed in the second epoch and keeps its label, sample 4 comes late.
    for epoch, batches in enumerate(
        [[[0, 1, 5, 6], [2, 3, 7, 8]], [[4, 1, 6, 8], [0, 2, 3, 7]]] * 2
    ):
        latest: dict[int, Array] = {}
        for number, rows in enumerate(batches):
            seed = 10 * epoch + number
            batch = batch_of(rows, seed)
            x = batch.views[0].numpy()
            expected = expect(x, rows, soft, student.w, seed)
            assert found(method, batch, seed) == pytest.approx(expected, rel=HALF)
            latest |= dict(zip(rows, probabilities(x @ student.w.T), strict=True))
            with torch.no_grad():
                student.weight.mul_(0.9)
        method.after_epoch(epoch, [])
        soft |= latest


def test_a_share_of_true_labels_only_is_spread_over_the_classes() -> None:
    batch, student = batch_of([0, 1, 6, 7]), LinearSoftmax(0)
    plain, smooth = (found(begun(student, label_smoothing=s), batch, 0) for s in (0.0, 0.3))
    assert plain["pseudo_labels"] == smooth["pseudo_labels"]
    assert plain["classification"] != smooth["classification"]


def test_balance_is_0_for_a_uniform_mean_prediction() -> None:
    student = LinearSoftmax(0)
    with torch.no_grad():
        student.weight.zero_()
    assert found(begun(student), batch_of([0, 1, 6]), 0)["balance"] == pytest.approx(0, abs=1e-12)


def test_labels_are_predicted_without_dropout_but_move_the_statistics() -> None:
    with seeded_rng("dropout"):
        student = DigitsCNN(classes=CLASSES, dropout=0.5)
    method, batch = begun(student), small_batch()
    for seed in (0, 1):
        torch.manual_seed(seed)
        method.losses(batch, ramp=1.0)
        if seed == 0:
            first = method.latest.clone()
    assert torch.equal(method.latest, first)
    norms = [module for module in student.modules() if isinstance(module, nn.BatchNorm2d)]
    assert [int(norm.num_batches_tracked or 0) for norm in norms] == [4, 4, 4]
    assert student.training


def test_only_the_trunk_and_the_class_head_learn() -> None:
    student = small_network()
    (loss,) = begun(student).losses(small_batch(), ramp=1.0)
    torch.autograd.backward(loss.total)
    assert reached_parts(student) == {"trunk", "class head"}


def test_one_view_and_four_bytes_per_sample_and_class_are_needed() -> None:
    assert SoftPseudoLabels.views == ONE_VIEW
    method = begun(LinearSoftmax(0))
    assert sum(buffer.nbytes for buffer in method.buffers()) == 16 * 4 * CLASSES


@pytest.mark.parametrize("step", [13, 40])
def test_a_stopped_run_continues_bit_for_bit(step: int, tmp_path: Path) -> None:
    recipe = small_recipe("method.name=soft-pseudo-labels")
    whole = train(recipe, tmp_path / "whole")
    with pytest.raises(Interrupted):
        train(recipe, tmp_path / "run", RaisesSignalAt(step))
    assert_equal_runs(resume(tmp_path / "run"), whole)
