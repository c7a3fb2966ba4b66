import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dualstudent.data.batching.samplers import Sampler

counts = st.integers(1, 40)
sizes = st.integers(1, 60)
seeds = st.integers(0, 2**63 - 1)


def indices(count: int) -> Tensor:
    return 1000 + 3 * torch.arange(count)  # values that differ from their positions


def taken(stream: Sampler, steps: range) -> list[int]:
    return torch.cat([stream.batch(step) for step in steps]).tolist()


@given(count=counts, size=sizes, seed=seeds)
def test_every_pass_is_a_permutation(count: int, size: int, seed: int) -> None:
    stream = Sampler(indices(count), size, seed, "labeled")

    handed_out = taken(stream, range(3 * count // size + 1))

    for start in range(0, 3 * count, count):
        assert sorted(handed_out[start : start + count]) == indices(count).tolist()


@given(count=counts, size=sizes, seed=seeds)
def test_whole_batches_drop_the_remainder_of_every_pass(count: int, size: int, seed: int) -> None:
    size = min(size, count)
    stream = Sampler(indices(count), size, seed, "unlabeled", whole_batches=True)
    steps = count // size

    for epoch in range(3):
        handed_out = taken(stream, range(epoch * steps, (epoch + 1) * steps))
        assert len(handed_out) == len(set(handed_out)) == steps * size
        assert set(handed_out) <= set(indices(count).tolist())


@given(
    count=counts,
    size=sizes,
    seed=seeds,
    whole=st.booleans(),
    steps=st.lists(st.integers(0, 10_000), min_size=1, max_size=8),
)
def test_a_step_gives_the_same_in_any_order_and_after_a_new_start(
    count: int, size: int, seed: int, whole: bool, steps: list[int]
) -> None:
    size = min(size, count) if whole else size

    def fresh() -> Sampler:
        return Sampler(indices(count), size, seed, "labeled", whole)

    forwards, backwards = fresh(), fresh()
    expected = {step: forwards.batch(step).tolist() for step in sorted(steps)}

    assert {step: backwards.batch(step).tolist() for step in sorted(steps)[::-1]} == expected
    assert {step: fresh().batch(step).tolist() for step in steps} == expected


@pytest.mark.parametrize("whole", [False, True])
def test_seed_name_and_pass_each_change_the_order(whole: bool) -> None:
    def order(seed: int, name: str, epoch: int) -> tuple[int, ...]:
        stream = Sampler(indices(30), 10, seed, name, whole)
        return tuple(taken(stream, range(3 * epoch, 3 * epoch + 3)))

    orders = {
        order(seed, name, epoch)
        for seed in (0, 1)
        for name in ("labeled", "unlabeled")
        for epoch in range(5)
    }

    assert len(orders) == 20


def test_no_sample_is_always_in_the_dropped_remainder() -> None:
    stream = Sampler(indices(7), 4, seed=0, name="unlabeled", whole_batches=True)

    frequency = torch.bincount(torch.tensor(taken(stream, range(1000))))[indices(7)] / 1000

    assert (frequency - 4 / 7).abs().max() < 0.08  # five standard deviations


def test_a_batch_may_be_larger_than_the_number_of_samples() -> None:
    batch = Sampler(indices(3), 10, seed=0, name="labeled").batch(0)

    assert sorted(batch.bincount()[indices(3)].tolist()) == [3, 3, 4]


def test_too_few_samples_for_a_whole_batch_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"3 unlabeled samples .*4"):
        Sampler(indices(3), 4, seed=0, name="unlabeled", whole_batches=True)


def test_no_samples_are_an_error() -> None:
    with pytest.raises(ValueError, match="0 labeled samples"):
        Sampler(indices(0), 4, seed=0, name="labeled")
