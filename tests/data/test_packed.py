"""Whole numbers in few bytes."""

import gc
import pickle
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dualstudent import ImageSamples, Normalization, PreparedData, Transforms
from dualstudent.data.batching.loader import BatchLoader, BatchSettings
from dualstudent.data.packed import Packed

numbers = st.integers(-(2**63), 2**63 - 1) | st.integers(-1, 300)


@given(st.lists(numbers, max_size=30) | st.sets(st.integers(-5, 40)).map(sorted))
def test_numbers_are_what_they_were(values: list[int]) -> None:
    given = torch.tensor(values, dtype=torch.int64)
    packed = Packed(given)
    assert len(packed) == len(values)
    assert torch.equal(packed.unpack(), given)
    for place in range(len(values)):
        assert int(packed[torch.tensor(place)]) == values[place]
    assert packed.nbytes <= given.nbytes


@pytest.mark.parametrize(
    ("values", "most"),
    [
        (torch.arange(5, 100_000), 0),
        (torch.tensor([*range(1000), *range(1003, 100_000)]), 3 * 4),
        (torch.arange(100_000) % 100 - 1, 100_000),
        (torch.arange(100_000) % 1000 - 1, 200_000),
        (torch.arange(100_000).flip(0), 400_000),
        (torch.arange(0, 1_000_000, 10), 400_000),
    ],
)
def test_numbers_take_as_few_bytes_as_they_can(values: Tensor, most: int) -> None:
    packed = Packed(values)
    assert packed.nbytes <= most
    assert torch.equal(pickle.loads(pickle.dumps(packed)).unpack(), values)


def make_large(count: int) -> PreparedData:
    """So many images without memory of their own; every hundredth has a label."""
    black = torch.zeros(1, 1, 4, 4, dtype=torch.uint8).expand(count, 1, 4, 4)
    samples = ImageSamples(black, Transforms(), Normalization())
    labels = torch.full((count,), -1)
    labels[::100] = torch.arange(len(labels[::100])) % 10
    labeled, unlabeled = (labels >= 0).nonzero().squeeze(1), (labels < 0).nonzero().squeeze(1)
    return PreparedData(
        tuple("0123456789"), samples, labels, labeled, unlabeled, samples, torch.tensor([])
    )


def count_bytes() -> int:
    """Bytes of all tensors that there are."""
    gc.collect()
    storages = [each.untyped_storage() for each in gc.get_objects() if type(each) is Tensor]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def test_sampler_and_labels_of_a_million_images_take_at_most_8_bytes_each() -> None:
    count, before = 1_000_000, count_bytes()
    data = make_large(count)
    loader = BatchLoader(data, BatchSettings(size=200, labeled=100), seed=0)
    # In the middle of one pass and at the start of the next, of both kinds of samples.
    batches = [loader.batch(step) for step in (3, loader.steps_per_epoch)]
    assert count < count_bytes() - before <= 8 * count
    expected = torch.full((count,), -1)
    expected[::100] = torch.arange(count // 100) % 10
    for batch in batches:
        assert torch.equal(batch.labels, expected[batch.indices])


def test_copies_of_prepared_data_keep_their_labels() -> None:
    data = make_large(1000)
    copy = replace(data, unreadable=1)
    for name in ("labels", "labeled", "unlabeled"):
        assert torch.equal(getattr(copy, name), getattr(data, name))
    assert copy.fingerprint() == data.fingerprint()
