from dataclasses import replace

import pytest
import torch
from torch import Tensor

from dualstudent.batch import ONE_VIEW, TWO_VIEWS, Batch, Views
from dualstudent.data.batching.loader import BatchLoader, BatchSettings
from dualstudent.data.datasets import Images
from dualstudent.data.prepared import PreparedData
from dualstudent.data.samples import ImageSamples
from dualstudent.data.transforms.normalization import Normalization
from dualstudent.data.transforms.policy import Transform, Transforms
from dualstudent.errors import UserError

LABELS_ONLY = Views(("weak",), ())
NOISE = Transforms(weak=Transform(noise=0.5))


def made_up(samples: int, labeled: int, side: int = 1) -> PreparedData:
    """Samples of which the first are labeled; every pixel value is the index."""
    indices = torch.arange(samples)
    pixels = (indices % 256).to(torch.uint8).reshape(-1, 1, 1, 1).expand(-1, 1, side, side)
    truth = indices % 10
    images = Images("made up", pixels, truth, tuple("0123456789"))
    return PreparedData(
        classes=images.classes,
        train=ImageSamples(pixels, Transforms(), Normalization()),
        labels=torch.where(indices < labeled, truth, -1),
        labeled=indices[:labeled],
        unlabeled=indices if labeled == samples else indices[labeled:],
        test=ImageSamples(pixels, Transforms(), Normalization()),
        test_labels=truth,
        source=images,
    )


def batches(
    data: PreparedData,
    size: int,
    labeled: int,
    transforms: Transforms | None = None,
    seed: int = 0,
    views: Views = TWO_VIEWS,
) -> BatchLoader:
    if transforms is not None:
        assert isinstance(data.source, Images)
        train = ImageSamples(data.source.pixels, transforms, Normalization())
        data = replace(data, train=train)
    return BatchLoader(
        data,
        BatchSettings(size=size, labeled=labeled),
        seed,
        views,
    )


def indices_of_epoch(made: BatchLoader, epoch: int, kind: str) -> list[int]:
    steps = range(epoch * made.steps_per_epoch, (epoch + 1) * made.steps_per_epoch)
    one_epoch = [made.batch(step) for step in steps]
    chosen = [
        batch.indices[batch.unlabeled if kind == "unlabeled" else batch.labels >= 0]
        for batch in one_epoch
    ]
    return torch.cat(chosen).tolist()


def contents(batch: Batch) -> tuple[Tensor, ...]:
    return batch.views[0], batch.views[1], batch.labels, batch.unlabeled, batch.indices


def same(one: Batch, other: Batch) -> bool:
    return all(map(torch.equal, contents(one), contents(other)))


def test_a_batch_holds_unlabeled_samples_without_and_labeled_samples_with_their_label() -> None:
    data = made_up(100, labeled=20)
    made = batches(data, size=16, labeled=4)

    for step in range(30):
        batch = made.batch(step)
        assert batch.unlabeled.tolist() == [True] * 12 + [False] * 4
        assert (batch.indices[:12] >= 20).all()
        assert (batch.labels[:12] == -1).all()
        assert (batch.indices[12:] < 20).all()
        assert torch.equal(batch.labels[12:], batch.indices[12:] % 10)


def test_both_views_show_the_samples_at_the_indices() -> None:
    batch = batches(made_up(100, labeled=20, side=2), size=16, labeled=4).batch(3)

    expected = (batch.indices / 127.5 - 1).reshape(16, 1, 1, 1).expand(16, 1, 2, 2)
    torch.testing.assert_close(batch.views[0], expected)
    torch.testing.assert_close(batch.views[1], expected)


def test_an_epoch_is_one_pass_over_the_unlabeled_samples_and_the_next_is_in_another_order() -> None:
    made = batches(made_up(105, labeled=20), size=12, labeled=4)

    epochs = [indices_of_epoch(made, epoch, "unlabeled") for epoch in range(3)]

    assert made.steps_per_epoch == 10
    for epoch in epochs:
        assert len(epoch) == len(set(epoch)) == 80  # of 85: the incomplete last batch is dropped
        assert set(epoch) <= set(range(20, 105))
    assert epochs[0] != epochs[1] != epochs[2]


def test_labels_come_round_evenly_however_few_they_are() -> None:
    made = batches(made_up(100, labeled=3), size=12, labeled=6)

    for step in range(10):
        assert made.batch(step).indices[6:].bincount().tolist() == [2, 2, 2]


def test_with_all_labels_every_sample_is_labeled_and_takes_part() -> None:
    made = batches(made_up(45, labeled=45), size=10, labeled=10)

    assert made.steps_per_epoch == 4
    for epoch in range(3):
        handed_out = indices_of_epoch(made, epoch, "unlabeled")
        assert handed_out == indices_of_epoch(made, epoch, "labeled")
        assert len(handed_out) == len(set(handed_out)) == 40
    batch = made.batch(0)
    assert batch.unlabeled.all()
    assert torch.equal(batch.labels, batch.indices % 10)


@pytest.mark.parametrize(
    "views",
    [
        Views(labeled=("weak",) * 3, unlabeled=("weak",)),
        Views(labeled=("weak",), unlabeled=("weak",) * 3),
    ],
)
def test_with_all_labels_every_sample_has_the_views_of_both_kinds(views: Views) -> None:
    batch = batches(made_up(45, labeled=45), size=10, labeled=10, views=views).batch(0)
    assert [len(view) for view in batch.views] == [10, 10, 10]


def test_with_all_labels_views_that_contradict_each_other_are_refused() -> None:
    views = Views(labeled=("weak",), unlabeled=("strong", "weak"))
    batches(made_up(45, labeled=20), size=10, labeled=5, views=views)
    with pytest.raises(UserError, match=r"every sample has a label, .*'weak'.*'strong'"):
        batches(made_up(45, labeled=45), size=10, labeled=10, views=views)


def test_without_unlabeled_the_batch_is_as_large_and_the_epoch_as_long() -> None:
    data = made_up(100, labeled=20)
    semi_supervised = batches(data, size=16, labeled=4)
    supervised = batches(data, size=16, labeled=4, views=LABELS_ONLY)

    assert supervised.steps_per_epoch == semi_supervised.steps_per_epoch == 6
    handed_out = torch.cat([supervised.batch(step).indices for step in range(5)])
    assert handed_out.bincount().tolist() == [4] * 20  # 5 batches of 16: four passes
    batch = supervised.batch(0)
    assert len(batch) == 16
    assert not batch.unlabeled.any()
    assert torch.equal(batch.labels, batch.indices % 10)


def test_without_unlabeled_nothing_changes_the_epoch_of_all_labels() -> None:
    data = made_up(45, labeled=45)
    supervised = batches(data, size=10, labeled=10, views=LABELS_ONLY)

    assert supervised.steps_per_epoch == 4
    assert len(set(indices_of_epoch(supervised, 0, "labeled"))) == 40


def test_a_batch_is_a_function_of_seed_and_step() -> None:
    data = made_up(100, labeled=20, side=4)

    def fresh(seed: int) -> BatchLoader:
        return batches(
            data, 16, 4, Transforms(weak=Transform(translate=1, flip=True, noise=0.1)), seed
        )

    forwards, backwards = fresh(seed=5), fresh(seed=5)
    in_order = [forwards.batch(step) for step in range(20)]
    backwards_in_order = [backwards.batch(step) for step in reversed(range(20))][::-1]

    assert all(map(same, in_order, backwards_in_order))
    assert same(fresh(seed=5).batch(13), in_order[13])
    assert not torch.equal(fresh(seed=6).batch(13).indices, in_order[13].indices)


def test_what_is_drawn_depends_on_step_and_view() -> None:
    # One sample only, so that the noise is all that can differ.
    made = batches(made_up(2, labeled=1, side=100), size=2, labeled=1, transforms=NOISE)
    first, second = made.batch(0), made.batch(1)

    draws = torch.stack(
        [view[0].flatten() for b in (first, second) for view in (b.views[0], b.views[1])]
    )

    assert (torch.corrcoef(draws) - torch.eye(4)).abs().max() < 0.05  # five standard deviations


def test_another_seed_draws_other_noise() -> None:
    data = made_up(2, labeled=1, side=100)
    draws = torch.stack(
        [batches(data, 2, 1, NOISE, seed).batch(0).views[0][0].flatten() for seed in (0, 1)]
    )

    assert torch.corrcoef(draws)[0, 1].abs() < 0.05


def test_one_view_is_the_first_of_two() -> None:
    data = made_up(100, labeled=20, side=4)
    both = batches(data, 16, 4, NOISE).batch(7)
    single = batches(data, 16, 4, NOISE, views=ONE_VIEW).batch(7)

    assert len(single.views) == 1
    assert torch.equal(single.views[0], both.views[0])
    assert not torch.equal(both.views[0], both.views[1])


@pytest.mark.parametrize(
    ("samples", "labels", "size", "labeled", "steps"),
    [
        pytest.param(50_000, 1_000, 100, 50, 980, id="CIFAR-10 1k"),
        pytest.param(50_000, 2_000, 100, 50, 960, id="CIFAR-10 2k"),
        pytest.param(50_000, 4_000, 100, 50, 920, id="CIFAR-10 4k"),
        pytest.param(50_000, 50_000, 100, 100, 500, id="CIFAR-10 all labels"),
        pytest.param(50_000, 10_000, 128, 31, 412, id="CIFAR-100 10k"),
        pytest.param(50_000, 50_000, 128, 128, 390, id="CIFAR-100 all labels"),
        pytest.param(73_257, 250, 100, 10, 811, id="SVHN 250"),
        pytest.param(73_257, 500, 100, 10, 808, id="SVHN 500"),
        pytest.param(7_291 + 60_000, 7_291, 256, 32, 267, id="USPS to MNIST"),
    ],
)
def test_steps_per_epoch_of_the_paper(
    samples: int, labels: int, size: int, labeled: int, steps: int
) -> None:
    assert batches(made_up(samples, labels), size, labeled).steps_per_epoch == steps


@pytest.mark.parametrize(
    ("labels", "size", "labeled", "telling"),
    [
        pytest.param(20, 8, 8, r"batch\.labeled = 8 .* batch\.size = 8", id="labeled only"),
        pytest.param(
            20, 8, 9, r"batch\.labeled = 9 .* batch\.size = 8", id="more labeled than all"
        ),
        pytest.param(
            20,
            100,
            10,
            r"batch\.size − batch\.labeled = 90 .* 80 samples",
            id="too few unlabeled",
        ),
        pytest.param(100, 101, 101, r"batch\.size = 101 .* 100 samples", id="too few of all"),
        pytest.param(100, 50, 10, r"batch\.labeled = 10 .*batch\.size = 50", id="not all of all"),
    ],
)
def test_batches_that_cannot_be_filled_are_refused(
    labels: int, size: int, labeled: int, telling: str
) -> None:
    with pytest.raises(UserError, match=telling):
        batches(made_up(100, labels), size, labeled)


def test_a_third_view_and_one_of_the_unlabeled_alone_are_kept() -> None:
    data, noisy = made_up(20, labeled=4, side=8), Views(("weak",), ("weak", "weak", "weak"))
    batch = batches(data, 10, 4, NOISE, views=noisy).batch(3)
    first, second, third = batch.views
    assert [len(view) for view in batch.views] == [10, 6, 6]
    assert batch.unlabeled.tolist() == [True] * 6 + [False] * 4
    pixels = batch.indices.float()[:6] / 127.5 - 1  # what the views show, below the noise
    for view in (first[:6], second, third):
        assert (view.mean(dim=(1, 2, 3)) - pixels).abs().max() < 0.5  # σ of the mean is 0.06
    assert not torch.equal(second, third)


def test_samples_know_their_domain() -> None:
    data = replace(made_up(20, labeled=4), is_target=torch.arange(20) >= 12)
    batch = batches(data, 10, 4).batch(0)
    assert batch.domains.tolist() == [int(index >= 12) for index in batch.indices.tolist()]
    assert len(set(batch.domains.tolist())) == 2
