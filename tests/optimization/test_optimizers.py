import pytest
import torch
from torch import nn

from dualstudent import DigitsCNN, EfficientNetLite0, UserError
from dualstudent.optimization.optimizers import (
    SCALE,
    AdamWSettings,
    SGDSettings,
    set_learning_rate,
)


def group_of(groups: list[dict[str, object]], parameter: nn.Parameter) -> dict[str, object]:
    (group,) = (g for g in groups if any(p is parameter for p in g["params"]))  # type: ignore[attr-defined]
    return group


def test_by_default_all_parameters_are_one_group() -> None:
    network = DigitsCNN()
    (group,) = SGDSettings(learning_rate=0.1).build(network).param_groups
    assert [id(p) for p in group["params"]] == [id(p) for p in network.parameters()]
    assert (group["lr"], group["momentum"], group["nesterov"]) == (0.1, 0.9, True)
    assert group["weight_decay"] == 1e-4


def test_trunk_and_heads_and_norms_have_groups_of_their_own() -> None:
    network = DigitsCNN(weight_norm=False)
    settings = AdamWSettings(learning_rate=0.01, trunk_scale=0.1, decay_norms_and_biases=False)
    optimizer = settings.build(network)
    set_learning_rate(optimizer, 0.004)
    named = dict(network.named_parameters())
    for name, rate, decay in (
        ("heads.classify.weight", 0.004, 0.01),
        ("heads.classify.bias", 0.004, 0.0),
        ("trunk.0.0.weight", 0.0004, 0.01),  # a convolution
        ("trunk.0.0.bias", 0.0004, 0.0),
        ("trunk.0.1.weight", 0.0004, 0.0),  # its batch norm
    ):
        group = group_of(optimizer.param_groups, named[name])
        assert group["lr"] == pytest.approx(rate)
        assert group["weight_decay"] == decay
    assert sum(len(g["params"]) for g in optimizer.param_groups) == len(list(network.parameters()))


def test_a_step_moves_each_group_at_its_own_rate() -> None:
    network = nn.Module()
    network.trunk, network.heads = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
    optimizer = SGDSettings(learning_rate=1.0, trunk_scale=0.25, weight_decay=0).build(network)
    before = [p.detach().clone() for p in network.parameters()]
    for parameter in network.parameters():
        parameter.grad = torch.ones_like(parameter)
    set_learning_rate(optimizer, 0.1)
    optimizer.step()
    moved = [(b - p.detach()).item() for b, p in zip(before, network.parameters(), strict=True)]
    assert moved == pytest.approx([0.1 * 1.9 * 0.25, 0.1 * 1.9])  # Nesterov's first step
    assert {group[SCALE] for group in optimizer.param_groups} == {0.25, 1.0}


def test_a_frozen_trunk_is_left_to_no_optimizer() -> None:
    network = DigitsCNN()
    optimizer = SGDSettings(learning_rate=0.1, trunk_scale=0).build(network)
    owned = [id(p) for group in optimizer.param_groups for p in group["params"]]
    assert owned == [id(p) for p in network.heads.parameters()]


def test_blocks_learn_slower_the_farther_they_are_from_the_heads() -> None:
    network = EfficientNetLite0(weights="random")
    settings = SGDSettings(
        learning_rate=1.0, trunk_scale=0.1, layer_decay=0.5, trained_blocks=3, weight_decay=0
    )
    optimizer = settings.build(network)
    set_learning_rate(optimizer, 2.0)
    named = dict(network.named_parameters())
    for name, rate in (
        ("heads.follow.bias", 2.0),
        ("trunk.head.convolution.weight", 0.1),  # 2 · 0.1 · 0.5
        ("trunk.head.norm.bias", 0.1),
        ("trunk.blocks.15.project.convolution.weight", 0.05),
        ("trunk.blocks.14.expand.norm.weight", 0.025),
    ):
        assert group_of(optimizer.param_groups, named[name])["lr"] == pytest.approx(rate)
    owned = {id(p) for group in optimizer.param_groups for p in group["params"]}
    trained = ("heads.", "trunk.head.", "trunk.blocks.14.", "trunk.blocks.15.")
    assert {name for name, p in named.items() if id(p) in owned} == {
        name for name in named if name.startswith(trained)
    }


@pytest.mark.parametrize("scale", [0, 0.5])
def test_a_network_without_heads_has_no_trunk_to_slow_down(scale: float) -> None:
    with pytest.raises(UserError, match=r"trunk_scale = .*: Linear has no heads.*; leave it out$"):
        SGDSettings(learning_rate=0.1, trunk_scale=scale).build(nn.Linear(1, 1))
    assert SGDSettings(learning_rate=0.1).build(nn.Linear(1, 1)).param_groups
