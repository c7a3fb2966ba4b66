from math import sqrt
from typing import cast

import pytest
import torch
from pydantic import TypeAdapter
from torch import Tensor, nn
from torch.nn import functional as F

from dualstudent.errors import UserError
from dualstudent.generators import seeded_rng
from dualstudent.networks import ResNeXt50
from dualstudent.networks.build import AnyNetworkSettings, build_network
from dualstudent.networks.resnext import ResNeXt50Settings
from dualstudent.prediction import Prediction

State = dict[str, Tensor]

FIRST_BLOCKS = (0, 3, 7, 13)  # of the stages


@pytest.fixture(scope="module")
def initial() -> ResNeXt50:
    """The network as built from its settings; tests must not change it."""
    settings = TypeAdapter(AnyNetworkSettings).validate_python({"name": "resnext50"})
    return cast(ResNeXt50, build_network(settings, 3, 5, image_size=64, seed=0, student=0))


def parameters_of(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("channels", "classes", "one_head"),
    [(3, 1000, 25_028_904), (1, 10, 22_994_122)],
)
def test_number_of_parameters(channels: int, classes: int, one_head: int) -> None:
    network = ResNeXt50(channels, classes)
    assert parameters_of(network) == one_head + 2048 * classes + classes
    assert parameters_of(network) - parameters_of(network.heads.follow) == one_head


def test_number_of_parameters_with_both_heads() -> None:
    assert parameters_of(ResNeXt50()) == 25_028_904 + 2_049_000


def reference(state: State, images: Tensor) -> Prediction:
    """The network in evaluation mode, the 32 transformations of a block one by one."""

    def normed(maps: Tensor, layer: str) -> Tensor:
        mean, variance, scale, shift = (
            state[f"{layer}.{name}"].view(-1, 1, 1)
            for name in ("running_mean", "running_var", "weight", "bias")
        )
        return (maps - mean) / (variance + 1e-5).sqrt() * scale + shift

    def mixed(maps: Tensor, layer: str, first: int) -> Tensor:
        weight = state[f"{layer}.{first}.weight"].flatten(1)
        return normed(torch.einsum("oi,bihw->bohw", weight, maps), f"{layer}.{first + 1}")

    def transformed(maps: Tensor, layer: str, stride: int) -> Tensor:
        weights = state[f"{layer}.3.weight"].chunk(32, dim=0)
        parts = [
            F.conv2d(part, weight, stride=stride, padding=1)
            for part, weight in zip(maps.chunk(32, dim=1), weights, strict=True)
        ]
        return normed(torch.cat(parts, dim=1), f"{layer}.4")

    maps = F.conv2d(images, state["trunk.0.weight"], stride=2, padding=3)
    maps = F.max_pool2d(normed(maps, "trunk.1").clamp(min=0), 3, stride=2, padding=1)
    for number in range(16):
        layer = f"trunk.{number + 4}"
        stride = 2 if number in FIRST_BLOCKS[1:] else 1
        inside = mixed(maps, f"{layer}.branches", 0).clamp(min=0)
        inside = transformed(inside, f"{layer}.branches", stride).clamp(min=0)
        if number in FIRST_BLOCKS:
            maps = mixed(maps[:, :, ::stride, ::stride], f"{layer}.skip", 0)
        maps = (maps + mixed(inside, f"{layer}.branches", 6)).clamp(min=0)
    features = maps.mean(dim=(2, 3))
    heads = [
        features @ state[f"heads.{head}.weight"].T + state[f"heads.{head}.bias"]
        for head in ("classify", "follow")
    ]
    return Prediction(heads[0], heads[1], features)


@pytest.mark.parametrize(
    ("channels", "classes", "size"), [(3, 5, (32, 32)), (1, 3, (65, 45)), (4, 2, (34, 96))]
)
def test_evaluation_equals_the_reference(
    channels: int, classes: int, size: tuple[int, int]
) -> None:
    with seeded_rng("resnext"), torch.no_grad():
        network = ResNeXt50(channels, classes).double().eval()
        for name, value in network.state_dict().items():
            if value.dim() == 1:  # leave no scale, shift or statistic at 0 or 1
                center = 0.0 if name.endswith(("bias", "mean")) else 1.0
                value.copy_(torch.rand_like(value) - 0.5 + center)
        images = torch.randn(2, channels, *size, dtype=torch.float64)
        expected = reference(network.state_dict(), images)
        one, other = expected.features
        assert (one - other).abs().max() > 1e-4 * one.max()  # the images come through
        for layout in (torch.contiguous_format, torch.channels_last):
            actual = network(images.contiguous(memory_format=layout))
            for output, expected_output in zip(actual, expected, strict=True):
                torch.testing.assert_close(output, expected_output, rtol=1e-9, atol=1e-9)


def test_channels_stay_last_in_memory(initial: ResNeXt50) -> None:
    layouts = []

    def remember(module: nn.Module, inputs: object, output: Tensor) -> None:
        layouts.append(output.is_contiguous(memory_format=torch.channels_last))

    handles = [
        layer.register_forward_hook(remember) for layer in cast(nn.Sequential, initial.trunk)
    ]
    with torch.no_grad():
        initial.eval()(torch.rand(2, 3, 64, 64).contiguous(memory_format=torch.channels_last))
    for handle in handles:
        handle.remove()
    assert layouts == [True] * 20


def test_every_parameter_learns() -> None:
    network = ResNeXt50(classes=5)
    prediction = network(torch.rand(4, 3, 32, 32))
    (prediction.class_logits.square().sum() + prediction.consistency_logits.sum()).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name


def test_every_stage_halves_the_image_but_the_first(initial: ResNeXt50) -> None:
    sides = []
    maps = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        for layer in cast(nn.Sequential, initial.trunk.eval()):
            maps = layer(maps)
            sides.append(maps.shape[-1])
    assert sides == [32] * 3 + [16] * (1 + 3) + [8] * 4 + [4] * 6 + [2] * 3


def test_convolutions_start_with_the_variance_of_he(initial: ResNeXt50) -> None:
    layers = [layer for layer in initial.trunk.modules() if isinstance(layer, nn.Conv2d)]
    assert len(layers) == 1 + 3 * 16 + 4
    for layer in layers:
        fan_out = layer.out_channels * layer.kernel_size[0] ** 2
        assert layer.weight.std().item() == pytest.approx(sqrt(2 / fan_out), rel=0.05)


def test_every_block_contributes_from_the_start(initial: ResNeXt50) -> None:
    norms = [layer for layer in initial.trunk.modules() if isinstance(layer, nn.BatchNorm2d)]
    assert all((norm.weight == 1).all() and (norm.bias == 0).all() for norm in norms)


def test_settings_make_the_network(initial: ResNeXt50) -> None:
    assert isinstance(initial, ResNeXt50)
    assert initial.heads.classify.out_features == 5
    assert cast(nn.Sequential, initial.trunk)[0].in_channels == 3


def test_too_small_images_are_refused() -> None:
    message = r"network 'resnext50' .* 32 pixels .* 31; .*data\.image_size"
    with pytest.raises(UserError, match=message):
        build_network(ResNeXt50Settings(), 3, 10, image_size=31, seed=0, student=0)
