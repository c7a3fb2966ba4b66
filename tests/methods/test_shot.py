from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from torch import nn

from dualstudent import losses, resume, train
from dualstudent.batch import Batch
from dualstudent.errors import UserError
from dualstudent.methods import SHOT, DualStudent, DualStudentSHOT, SHOTSettings, Task
from dualstudent.methods.centroids import label_by_centroids
from dualstudent.networks import MLP
from dualstudent.signals import Interrupted
from tests.support.linear_student import Array, LinearSoftmax, linear_batch, probabilities
from tests.support.recipes import small_recipe
from tests.support.runs import RaisesSignalAt, assert_equal_runs
from tests.support.students import reached_parts, small_batch, small_network

LABELS = [-1, -1, -1, -1, -1, -1, 0, 2, 1]
TARGET = range(6)
CLASSES = 3


def labels_by_scipy(features: Array, p: Array) -> Array:
    """Section 3.3 of the paper with the distances of SciPy."""
    rows = np.hstack([features, np.ones((len(features), 1))])
    weights = p
    for _ in range(2):
        centroids = (weights.T @ rows_of_length_one(rows)) / weights.sum(axis=0)[:, None]
        nearest = cdist(rows, centroids, "cosine").argmin(axis=1)
        weights = np.eye(p.shape[1])[nearest]
    return np.asarray(nearest)


def rows_of_length_one(rows: Array) -> Array:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def begun(student: nn.Module, epochs: int = 2, samples: int = 16, share: float = 0.5) -> SHOT:
    method = SHOT([student], SHOTSettings(source_share=share))
    method.begin(Task(epochs, samples, CLASSES, (5,), value_range=1))
    return method


def information(p: Array) -> tuple[float, float]:
    mean = p.mean(axis=0)
    return -(p * np.log(p)).sum(axis=1).mean(), -(mean * np.log(mean)).sum()


def test_centroids_are_those_of_scipy() -> None:
    generator = np.random.default_rng(0)
    features, logits = generator.normal(size=(200, 6)), generator.normal(size=(200, 4))
    features[:, :4] += logits  # so that classes are clusters, roughly
    p = probabilities(logits)
    found = label_by_centroids(torch.from_numpy(features), torch.from_numpy(p))
    assert found.tolist() == labels_by_scipy(features, p).tolist()
    assert (found.numpy() != p.argmax(axis=1)).any()  # the centroids change some labels


def test_a_class_without_samples_labels_none() -> None:
    p = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    assert label_by_centroids(torch.tensor([[-1.0], [1.0]]), p).tolist() == [0, 1]


def test_mean_entropy_by_its_definition() -> None:
    logits = torch.randn(7, 4, dtype=torch.float64)
    expected = information(probabilities(logits.numpy()))[1]
    assert losses.mean_entropy(logits).item() == pytest.approx(expected, rel=1e-12)
    assert torch.autograd.gradcheck(losses.mean_entropy, logits.requires_grad_())


def test_first_the_labels_then_the_target_by_their_definitions() -> None:
    student = LinearSoftmax(0)
    method, batch = begun(student), linear_batch(LABELS)
    x = batch.views[0].numpy()
    p = probabilities(x @ student.w.T)
    first = {name: term.item() for name, term in method.losses(batch, 1.0)[0].terms.items()}
    cross = -np.log([p[6, 0], p[7, 2], p[8, 1]]).mean()
    assert first == {
        "classification": pytest.approx(cross, rel=1e-6),
        **dict.fromkeys(("entropy", "balance", "pseudo_labels"), 0.0),
    }
    method.after_epoch(0, iter([batch]))
    guessed = labels_by_scipy(x[TARGET], p[TARGET])
    assert method.pseudo_labels[:9].tolist() == [*guessed, -1, -1, -1]
    second = {name: term.item() for name, term in method.losses(batch, 1.0)[0].terms.items()}
    entropy, of_mean = information(p[TARGET])
    assert second == {
        "classification": 0.0,
        "entropy": pytest.approx(entropy, rel=1e-6),
        "balance": pytest.approx(-of_mean, rel=1e-6),
        "pseudo_labels": pytest.approx(-0.1 * np.log(p[TARGET, guessed]).mean(), rel=1e-6),
    }


def test_samples_without_a_pseudo_label_do_not_count_for_it() -> None:
    method, batch = begun(LinearSoftmax(0), share=0.0), linear_batch(LABELS)
    assert method.losses(batch, 1.0)[0].terms["pseudo_labels"].item() == 0.0
    assert method.losses(batch, 1.0)[0].terms["entropy"].item() > 0


def test_the_class_head_learns_from_labels_and_is_kept_afterwards() -> None:
    batch = small_batch()
    method = begun(small_network())
    (student,) = method.students
    torch.autograd.backward(method.losses(batch, 1.0)[0].total)
    assert reached_parts(student) == {"trunk", "class head"}  # type: ignore[arg-type]
    method.zero_grad()
    method.after_epoch(0, iter([batch]))
    torch.autograd.backward(method.losses(batch, 1.0)[0].total)
    assert reached_parts(student) == {"trunk"}  # type: ignore[arg-type]


def test_a_network_that_is_a_class_head_alone_is_refused() -> None:
    heads_alone = MLP(features=4, classes=3, hidden=())
    with pytest.raises(UserError, match=r"keeps the class head .* network.hidden = \[256\]"):
        begun(heads_alone)
    begun(MLP(features=4, classes=3, hidden=(5,)))


def test_target_rows_only_are_used_for_the_target() -> None:
    """Unlabeled rows of the source, too, are left out."""
    method, batch = begun(LinearSoftmax(0), share=0.0), linear_batch(LABELS)
    batch.domains = torch.tensor([1, 1, 1, 0, 0, 0, 0, 0, 0])
    p = probabilities(batch.views[0].numpy()[:3] @ LinearSoftmax(0).w.T)
    found = method.losses(batch, 1.0)[0].terms
    assert found["entropy"].item() == pytest.approx(information(p)[0], rel=1e-6)


def test_stop_and_resume_bit_for_bit(tmp_path: Path) -> None:
    recipe = small_recipe("method.name=shot", "schedule.epochs=3")
    whole = train(recipe, tmp_path / "whole")
    with pytest.raises(Interrupted):
        train(recipe, tmp_path / "stopped", RaisesSignalAt(70))
    assert_equal_runs(resume(tmp_path / "stopped"), whole)


def test_dual_student_adds_the_terms_with_the_centroids_of_the_other_student() -> None:
    students = [LinearSoftmax(0), LinearSoftmax(1)]
    points = linear_batch(LABELS)
    batch = Batch((points.views[0], points.views[0] + 0.1), points.labels)
    found = DualStudentSHOT(students).losses(batch, ramp=0.5)
    plain = DualStudent(students).losses(batch, ramp=0.5)
    x = [view.numpy()[TARGET] for view in batch.views]
    p = [probabilities(x[i] @ students[i].w.T) for i in range(2)]
    for i, (loss, without) in enumerate(zip(found, plain, strict=True)):
        assert loss.terms["classification"].item() == without.terms["classification"].item()
        guessed = labels_by_scipy(x[1 - i], p[1 - i])
        entropy, of_mean = information(p[i])
        assert loss.terms["entropy"].item() == pytest.approx(0.5 * entropy, rel=1e-6)
        assert loss.terms["balance"].item() == pytest.approx(-0.5 * of_mean, rel=1e-6)
        cross = -np.log(p[i][range(6), guessed]).mean()
        assert loss.terms["pseudo_labels"].item() == pytest.approx(0.15 * cross, rel=1e-6)


def test_the_terms_reach_their_own_student_only() -> None:
    batch = small_batch()
    for number in range(2):
        students = [small_network(0), small_network(1)]
        terms = DualStudentSHOT(students).losses(batch, ramp=1.0)[number].terms
        added = torch.stack([terms[name] for name in ("entropy", "balance", "pseudo_labels")])
        torch.autograd.backward(added.sum())
        assert reached_parts(students[number]) == {"trunk", "class head"}
        assert reached_parts(students[1 - number]) == set()
