from typing import Literal

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dualstudent.errors import UserError
from dualstudent.generators import seeded_rng
from dualstudent.networks import CNN13, DigitsCNN, QuickCNN
from dualstudent.networks.build import build_network
from dualstudent.networks.cnn13 import CNN13Settings
from dualstudent.networks.digits_cnn import DigitsCNNSettings
from dualstudent.networks.network import NetworkSettings
from dualstudent.networks.quick_cnn import QuickCNNSettings
from dualstudent.networks.shake_shake import ShakeShakeSettings
from dualstudent.prediction import Prediction

State = dict[str, Tensor]
Network = type[CNN13] | type[DigitsCNN] | type[QuickCNN]

# The index of a convolution in the trunk, its padding and its stride; where the paper has the
# network, from the tables of its Appendix B.
Convolution = tuple[int, int, int]
Layers = list[Convolution | Literal["pool"]]
CNN13_LAYERS: Layers = [
    *[(0, 1, 1), (1, 1, 1), (2, 1, 1)],
    "pool",
    *[(5, 1, 1), (6, 1, 1), (7, 1, 1)],
    "pool",
    *[(10, 0, 1), (11, 0, 1), (12, 0, 1)],
]
DIGITS_LAYERS: Layers = [(0, 1, 1), "pool", (2, 1, 1), "pool", (5, 1, 1)]
QUICK_LAYERS: Layers = [(0, 1, 2), "pool", (2, 1, 1), "pool", (5, 1, 1)]
LAYERS: dict[Network, Layers] = {
    CNN13: CNN13_LAYERS,
    DigitsCNN: DIGITS_LAYERS,
    QuickCNN: QUICK_LAYERS,
}
every_network = pytest.mark.parametrize("network", [CNN13, DigitsCNN, QuickCNN])


def weight_of(state: State, layer: str) -> Tensor:
    if f"{layer}.weight" in state:
        return state[f"{layer}.weight"]
    length = state[f"{layer}.parametrizations.weight.original0"]
    direction = state[f"{layer}.parametrizations.weight.original1"]
    norm = direction.flatten(1).square().sum(dim=1).sqrt()
    return direction * (length.flatten() / norm).view(-1, *[1] * (direction.dim() - 1))


def batch_normed(state: State, layer: str, maps: Tensor) -> Tensor:
    mean, variance, scale, shift = (
        state[f"{layer}.{name}"].view(-1, 1, 1)
        for name in ("running_mean", "running_var", "weight", "bias")
    )
    return (maps - mean) / (variance + 1e-5).sqrt() * scale + shift


def reference(network: Network, state: State, images: Tensor) -> Prediction:
    maps = images
    for layer in LAYERS[network]:
        if layer == "pool":
            maps = F.max_pool2d(maps, 2)
            continue
        index, padding, stride = layer
        block = f"trunk.{index}"
        weight, bias = weight_of(state, f"{block}.0"), state[f"{block}.0.bias"]
        maps = F.conv2d(maps, weight, bias, stride, padding)
        maps = F.leaky_relu(batch_normed(state, f"{block}.1", maps), 0.1)
    features = F.adaptive_avg_pool2d(maps, 1).flatten(1)
    heads = [
        F.linear(features, weight_of(state, f"heads.{head}"), state[f"heads.{head}.bias"])
        for head in ("classify", "follow")
    ]
    return Prediction(heads[0], heads[1], features)


def scrambled(network: nn.Module) -> nn.Module:
    """In evaluation mode, with no scale, shift or statistic left at 0 or 1 where errors hide."""
    with seeded_rng("scrambled"), torch.no_grad():
        for name, value in network.double().state_dict().items():
            if value.dim() == 1 or name.endswith("original0"):
                value.copy_(torch.rand_like(value) + 0.5)
    return network.eval()


@pytest.mark.parametrize(
    ("network", "classes", "weight_norm", "expected"),
    [
        (CNN13, 10, True, 3_127_208),
        (CNN13, 100, True, 3_150_608),
        (DigitsCNN, 10, True, 14_968),
        (DigitsCNN, 10, False, 14_868),
        (QuickCNN, 10, True, 97_192),
        (QuickCNN, 10, False, 96_948),
    ],
)
def test_number_of_parameters(
    network: Network, classes: int, weight_norm: bool, expected: int
) -> None:
    parameters = network(classes=classes, weight_norm=weight_norm).parameters()
    assert sum(parameter.numel() for parameter in parameters) == expected


@every_network
@pytest.mark.parametrize("weight_norm", [True, False])
@pytest.mark.parametrize(
    ("channels", "classes", "height", "width"), [(3, 10, 32, 32), (1, 4, 28, 28), (2, 3, 12, 17)]
)
def test_forward_equals_the_reference(
    network: Network, weight_norm: bool, channels: int, classes: int, height: int, width: int
) -> None:
    built = scrambled(network(channels, classes, weight_norm=weight_norm))
    with seeded_rng("images"), torch.no_grad():
        images = torch.randn(2, channels, height, width, dtype=torch.float64)
        expected = reference(network, built.state_dict(), images)
        actual = built(images)
    for output, expected_output in zip(actual, expected, strict=True):
        torch.testing.assert_close(output, expected_output, rtol=1e-9, atol=1e-9)
    assert actual.class_logits.shape == (2, classes)


@every_network
def test_smallest_image_is_the_smallest_that_works(network: Network) -> None:
    built = network(channels=1).eval()
    size = built.smallest_image or 0
    assert built(torch.rand(1, 1, size, size)).class_logits.isfinite().all()
    with pytest.raises(RuntimeError):
        built(torch.rand(1, 1, size - 1, size - 1))


def test_the_papers_pool_drops_a_row_and_a_column() -> None:
    whole, paper = DigitsCNN().eval(), DigitsCNN(pool=6).eval()
    paper.load_state_dict(whole.state_dict())
    images = torch.rand(2, 1, 28, 28)
    maps = whole.trunk(images)
    assert maps.shape[2:] == (7, 7)
    torch.testing.assert_close(paper.features(images), maps[..., :6, :6].mean(dim=(2, 3)))
    torch.testing.assert_close(whole.features(images), maps.mean(dim=(2, 3)))


def test_a_pool_larger_than_the_map_is_an_error() -> None:
    settings = DigitsCNNSettings(pool=6)
    build_network(settings, 1, 10, image_size=24, seed=0, student=0)
    with pytest.raises(UserError, match=r"24 pixels .* 23"):
        build_network(settings, 1, 10, image_size=23, seed=0, student=0)


@every_network
def test_two_heads_start_differently(network: Network) -> None:
    prediction = network(channels=1).eval()(torch.rand(1, 1, 12, 12))
    assert not torch.equal(prediction.class_logits, prediction.consistency_logits)


@every_network
@pytest.mark.parametrize(("dropout", "repeatable"), [(0.0, True), (0.5, False)])
def test_dropout_acts_in_training(network: Network, dropout: float, repeatable: bool) -> None:
    built, images = network(channels=1, dropout=dropout).train(), torch.rand(2, 1, 12, 12)
    first, second = built(images).class_logits, built(images).class_logits
    assert torch.equal(first, second) == repeatable


def test_batch_norm_statistics_move_by_a_tenth() -> None:
    network, images = DigitsCNN().train(), torch.rand(4, 1, 8, 8)
    state = {name: value.clone() for name, value in network.state_dict().items()}
    network(images)
    maps = F.conv2d(images, weight_of(state, "trunk.0.0"), state["trunk.0.0.bias"], padding=1)
    moved = network.state_dict()
    torch.testing.assert_close(moved["trunk.0.1.running_mean"], 0.1 * maps.mean(dim=(0, 2, 3)))
    torch.testing.assert_close(moved["trunk.0.1.running_var"], 0.9 + 0.1 * maps.var(dim=(0, 2, 3)))


SETTINGS = DigitsCNNSettings()


def initial_state(seed: int, student: int) -> State:
    network = build_network(SETTINGS, 1, 10, image_size=28, seed=seed, student=student)
    state: State = network.state_dict()
    return state


def drawn_parameters_differ(one: State, other: State) -> bool:
    return all(
        not torch.equal(one[name], other[name])
        for name in one
        if name.endswith("original1") or (name.endswith(".bias") and ".1." not in name)
    )


def test_same_seed_and_student_start_the_same() -> None:
    one = initial_state(seed=3, student=1)
    torch.rand(1)
    other = initial_state(seed=3, student=1)
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(("seed", "student"), [(3, 0), (4, 1), (1, 3)])
def test_other_seeds_and_students_start_differently(seed: int, student: int) -> None:
    assert drawn_parameters_differ(initial_state(3, 1), initial_state(seed, student))


def test_building_leaves_the_global_random_state_alone() -> None:
    before = torch.get_rng_state()
    initial_state(seed=0, student=0)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("settings", "network"),
    [
        (CNN13Settings(dropout=0.25, weight_norm=False), CNN13),
        (DigitsCNNSettings(dropout=0.25, weight_norm=False), DigitsCNN),
        (QuickCNNSettings(dropout=0.25, weight_norm=False), QuickCNN),
    ],
)
def test_settings_reach_the_network(settings: NetworkSettings, network: Network) -> None:
    built = build_network(settings, channels=2, classes=5, image_size=12, seed=0, student=0)
    expected = network(channels=2, classes=5, dropout=0.25, weight_norm=False)
    assert isinstance(built, network)
    assert {k: v.shape for k, v in built.state_dict().items()} == {
        k: v.shape for k, v in expected.state_dict().items()
    }
    dropouts = [module.p for module in built.modules() if isinstance(module, nn.Dropout)]
    assert dropouts
    assert set(dropouts) == {0.25}


@pytest.mark.parametrize("width", [1, 2, 3])
def test_width_multiplies_the_channels_of_the_digits_cnn(width: int) -> None:
    settings = DigitsCNNSettings(weight_norm=False, width=width)
    built = build_network(settings, channels=1, classes=10, image_size=28, seed=0, student=0)
    convolutions = [module for module in built.modules() if isinstance(module, nn.Conv2d)]
    assert [layer.out_channels for layer in convolutions] == [16 * width, 32 * width, 32 * width]


@pytest.mark.parametrize(
    ("settings", "smallest"),
    [
        (CNN13Settings(), 12),
        (DigitsCNNSettings(), 4),
        (QuickCNNSettings(), 8),
        (ShakeShakeSettings(width=4), 8),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_too_small_images_are_refused(settings: NetworkSettings, smallest: int) -> None:
    build_network(settings, 1, 10, image_size=smallest, seed=0, student=0)
    message = (
        rf"network '{settings.name}' .* {smallest} pixels .* {smallest - 1}; .*data\.image_size"
    )
    with pytest.raises(UserError, match=message):
        build_network(settings, 1, 10, image_size=smallest - 1, seed=0, student=0)
