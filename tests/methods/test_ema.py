import numpy as np
import pytest
import torch
from torch import nn

from dualstudent.generators import seeded_rng
from dualstudent.methods.ema import copy_without_gradient, start_up_decay, update_ema
from tests.support.students import small_batch, small_network


def test_average_follows_its_definition_through_the_start_up() -> None:
    """Steps 1, 2, … of min(1 − 1/(t+1), α): first the plain mean of all states, then the EMA."""
    with seeded_rng("states"):
        states = torch.randn(12, 5, dtype=torch.float64)
    student = nn.Linear(5, 1, bias=False, dtype=torch.float64)
    student.weight.data.copy_(states[:1])
    teacher = copy_without_gradient(student)
    expected, decay = states[0].numpy(), 0.8
    for step, state in enumerate(states[1:]):
        student.weight.data.copy_(state[None])
        update_ema(teacher, student, start_up_decay(step, decay))
        alpha = min(1 - 1 / (step + 1 + 1), decay)
        expected = alpha * expected + (1 - alpha) * state.numpy()
        np.testing.assert_allclose(teacher.weight.numpy()[0], expected, rtol=1e-12, atol=0)
        if step < 4:  # 1 − 1/(t+1) reaches 0.8 with t = 4
            mean = states[: step + 2].mean(dim=0)
            torch.testing.assert_close(teacher.weight[0], mean, rtol=1e-12, atol=0)


@pytest.mark.parametrize(("step", "decay", "expected"), [(0, 0.97, 0.5), (31, 0.97, 1 - 1 / 33)])
def test_start_up_decay_before_it_is_the_decay(step: int, decay: float, expected: float) -> None:
    assert start_up_decay(step, decay) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("decay", [0.0, 0.3, 0.97])
def test_start_up_ends_at_the_decay(decay: float) -> None:
    assert start_up_decay(10_000, decay) == decay


def test_raw_parameters_are_averaged_and_nothing_else() -> None:
    """Of weight normalization, length and direction each; not the weight they make."""
    student, teacher = small_network(0), copy_without_gradient(small_network(1))
    student(small_batch().views[0])  # moves the student's batch-norm statistics
    old = {name: p.clone() for name, p in teacher.state_dict().items()}
    update_ema(teacher, student, decay=0.75)
    parameters = dict(student.named_parameters())
    assert any(name.endswith("weight.original0") for name in parameters)
    for name, value in teacher.state_dict().items():
        expected = old[name].numpy()
        if name in parameters:
            expected = 0.75 * expected + 0.25 * parameters[name].detach().numpy()
            np.testing.assert_allclose(value.numpy(), expected, rtol=1e-5, atol=1e-7)
        else:
            np.testing.assert_array_equal(value.numpy(), expected)


def test_decay_0_copies_and_decay_1_changes_nothing() -> None:
    student, teacher = small_network(0), small_network(1)
    old = [p.detach().clone() for p in teacher.parameters()]
    update_ema(teacher, student, decay=1.0)
    assert all(map(torch.equal, teacher.parameters(), old))
    update_ema(teacher, student, decay=0.0)
    assert all(map(torch.equal, teacher.parameters(), student.parameters()))


def test_a_copy_is_equal_free_and_without_gradient() -> None:
    network = small_network().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    twin = copy_without_gradient(network)
    for (name, p), q in zip(network.named_parameters(), twin.parameters(), strict=True):
        assert torch.equal(p, q)
        assert p.stride() == q.stride(), name
        assert p.requires_grad
        assert not q.requires_grad
    assert any(not p.is_contiguous() for p in twin.parameters())
    with torch.no_grad():
        next(network.parameters()).add_(1)
    assert not torch.equal(next(network.parameters()), next(twin.parameters()))
