"""What all methods with pseudo-labels have in common; their rules are tested one by one."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from dualstudent import resume, train
from dualstudent.batch import Batch, Views
from dualstudent.methods import METHODS, FixMatch, FixMatchSettings, Method
from dualstudent.methods.pseudo_labels import PseudoLabelMethod
from dualstudent.signals import Interrupted
from tests.support.linear_student import LinearSoftmax
from tests.support.recipes import small_recipe
from tests.support.runs import RaisesSignalAt, assert_equal_runs
from tests.support.strong_views import UNLABELED, strong_batch, terms_of
from tests.support.students import Recorder, begun, reached_parts, small_batch, small_network

ALL = [kind for kind in METHODS if issubclass(kind, PseudoLabelMethod)]
every_method = pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)


def images() -> Batch:
    """Images whose strong view lacks the labeled ones."""
    batch = small_batch()
    return replace(batch, views=(batch.views[0], batch.views[1][:12]))


def test_there_are_five() -> None:
    assert len(ALL) == 5


@every_method
def test_strong_views_are_asked_for_of_unlabeled_samples_only(kind: type[Method]) -> None:
    assert kind.views == Views(labeled=("weak",), unlabeled=("weak", "strong"))


@every_method
def test_weak_views_are_seen_without_gradient_strong_and_labeled_ones_with(
    kind: type[Method],
) -> None:
    recorder, batch = Recorder(LinearSoftmax(0)), strong_batch(0)
    begun(kind([recorder])).losses(batch, ramp=1.0)
    weak, strong = batch.views
    (first, with_gradient), (second, with_gradient_too) = recorder.shown
    assert (with_gradient, with_gradient_too) == (False, True)
    assert torch.equal(first, weak[:UNLABELED])
    assert torch.equal(second, torch.cat((strong, weak[UNLABELED:])))


@every_method
def test_both_passes_are_made_in_training_mode(kind: type[Method]) -> None:
    student = small_network()
    begun(kind([student])).losses(images(), ramp=1.0)
    norms = [module for module in student.modules() if isinstance(module, nn.BatchNorm2d)]
    assert student.training
    assert [int(norm.num_batches_tracked or 0) for norm in norms] == [2, 2, 2]


@every_method
def test_a_strong_view_of_all_samples_is_used_for_the_unlabeled(kind: type[Method]) -> None:
    few = strong_batch(0)
    weak, strong = few.views
    rest = torch.full_like(weak[UNLABELED:], torch.nan)
    many = replace(few, views=(weak, torch.cat((strong, rest))))
    assert terms_of(begun(kind([LinearSoftmax(0)])), many) == terms_of(
        begun(kind([LinearSoftmax(0)])), few
    )


@every_method
def test_there_is_no_ramp(kind: type[Method]) -> None:
    batch = strong_batch(0)
    terms = [terms_of(begun(kind([LinearSoftmax(0)])), batch, ramp) for ramp in (0.0, 1.0)]
    assert terms[0] == terms[1]


@every_method
def test_only_the_trunk_and_the_class_head_learn(kind: type[Method]) -> None:
    student = small_network()
    (loss,) = begun(kind([student])).losses(images(), ramp=1.0)
    torch.autograd.backward(loss.total)
    assert reached_parts(student) == {"trunk", "class head"}


def test_the_average_of_the_cross_entropy_can_be_over_the_batch() -> None:
    batch = strong_batch(0)
    over_labeled = terms_of(begun(FixMatch([LinearSoftmax(0)])), batch)["classification"]
    over_batch = FixMatch([LinearSoftmax(0)], FixMatchSettings(classification_average="batch"))
    assert terms_of(begun(over_batch), batch)["classification"] == pytest.approx(
        over_labeled * 4 / 16
    )


def test_unlabeled_samples_need_not_come_first() -> None:
    batch = strong_batch(0)
    order = torch.randperm(len(batch), generator=torch.manual_seed(0))
    weak, strong = batch.views
    whole = torch.cat((strong, weak[UNLABELED:]))
    mixed = Batch((weak[order], whole[order]), batch.labels[order], indices=batch.indices[order])
    method = begun(FixMatch([LinearSoftmax(0)], FixMatchSettings(confidence_threshold=0.7)))
    assert terms_of(method, mixed) == pytest.approx(terms_of(method, batch), rel=1e-12)


# In the middle of the last epoch, when all averages and memories are in use.
@pytest.mark.parametrize(
    "changes",
    [
        ["name=fixmatch", "distribution_alignment=true", "confidence_threshold=0.3"],
        ["name=flexmatch", "confidence_threshold=0.3"],
        ["name=freematch"],
        ["name=softmatch"],
        ["name=adamatch"],
    ],
    ids=lambda changes: str(changes[0]),
)
def test_a_stopped_run_continues_bit_for_bit(changes: list[str], tmp_path: Path) -> None:
    recipe = small_recipe(*(f"method.{each}" for each in changes), "transforms.strong.noise=0.5")
    whole = train(recipe, tmp_path / "whole")
    assert whole.read_metrics()[1]["loss"][0]["pseudo_labels"] > 0
    with pytest.raises(Interrupted):
        train(recipe, tmp_path / "run", RaisesSignalAt(40))
    assert_equal_runs(resume(tmp_path / "run"), whole)
