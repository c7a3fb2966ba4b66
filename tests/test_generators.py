import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dualstudent.generators import (
    derive_seed,
    make_generator,
    preserve_rng,
    seed_rng,
    seeded_rng,
)

purposes = st.lists(st.integers() | st.text(), max_size=4).map(tuple)


@given(purpose=purposes)
def test_seed_fits_63_bits(purpose: tuple[int | str, ...]) -> None:
    assert 0 <= derive_seed(*purpose) < 2**63


@given(one=purposes, other=purposes)
def test_seeds_are_equal_exactly_for_equal_purposes(
    one: tuple[int | str, ...], other: tuple[int | str, ...]
) -> None:
    assert (derive_seed(*one) == derive_seed(*other)) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [((1, 23), (12, 3)), ((1, 2), (2, 1)), ((1,), ("1",)), (("a", "b"), ("a, b",)), ((), (0,))],
)
def test_seed_depends_on_every_part_and_its_place(
    one: tuple[int | str, ...], other: tuple[int | str, ...]
) -> None:
    assert derive_seed(*one) != derive_seed(*other)


# A run continues from its step number only as long as these stay what they are.
def test_seed_is_the_same_in_every_process_and_release() -> None:
    assert derive_seed(0, "step", 7) == 5712503053122524263
    assert derive_seed(0, "initial state", 0) == 1482357017285139031


def test_generators_for_the_same_purpose_draw_the_same() -> None:
    one, other = make_generator(0, "view", 1), make_generator(0, "view", 1)
    torch.rand(3, generator=one)
    torch.rand(3, generator=other)
    assert torch.equal(torch.rand(3, generator=one), torch.rand(3, generator=other))


def test_generators_for_different_purposes_draw_differently() -> None:
    draws = [torch.rand(3, generator=make_generator(0, "view", view)) for view in (1, 2)]
    assert not torch.equal(draws[0], draws[1])


def test_generator_is_seeded_by_seed_for_on_its_device() -> None:
    generator = make_generator(3, "noise", device="cpu")
    assert generator.initial_seed() == derive_seed(3, "noise")
    assert generator.device == torch.device("cpu")


def test_generator_leaves_the_global_state_alone() -> None:
    before = torch.get_rng_state()
    torch.rand(3, generator=make_generator(0))
    assert torch.equal(torch.get_rng_state(), before)


def draw(*purpose: int | str) -> torch.Tensor:
    with seeded_rng(*purpose):
        return torch.rand(3)


def test_block_draws_by_its_purpose_whatever_was_drawn_before() -> None:
    first = draw(0, "dropout")
    torch.rand(1)
    assert torch.equal(draw(0, "dropout"), first)
    assert not torch.equal(draw(1, "dropout"), first)


def test_block_draws_what_a_generator_for_the_same_purpose_draws() -> None:
    assert torch.equal(draw(0, "x"), torch.rand(3, generator=make_generator(0, "x")))


def test_block_leaves_the_global_state_alone() -> None:
    before = torch.get_rng_state()
    draw(0)
    assert torch.equal(torch.get_rng_state(), before)


def test_blocks_nest() -> None:
    with seeded_rng("outer"):
        torch.rand(3)
        draw("inner")
        after_inner = torch.rand(3)
    with seeded_rng("outer"):
        torch.rand(3)
        assert torch.equal(torch.rand(3), after_inner)


def test_global_state_survives_an_error_in_the_block() -> None:
    before = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="negative dimension"), seeded_rng(0):
        torch.rand(-1)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_generator_of_an_apple_gpu_is_restored_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a generator in the place of that GPU's, as there is none on most machines."""
    gpu = make_generator("gpu")
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: True)
    monkeypatch.setattr("torch.mps.get_rng_state", gpu.get_state)
    monkeypatch.setattr("torch.mps.set_rng_state", gpu.set_state)
    before = gpu.get_state()
    with preserve_rng():
        gpu.manual_seed(1)
    assert torch.equal(gpu.get_state(), before)


def test_global_numbers_are_those_of_torch_manual_seed() -> None:
    with preserve_rng():
        torch.manual_seed(derive_seed(3, "step", 5))
        expected = torch.rand(3), torch.randn(3)
        torch.rand(1)
        seed_rng(3, "step", 5)
        assert all(map(torch.equal, (torch.rand(3), torch.randn(3)), expected))
