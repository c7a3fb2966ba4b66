"""Every network in every kind of file."""

from pathlib import Path

import pytest
import torch
from torch import nn

from dualstudent.data.transforms.normalization import Normalization
from dualstudent.export.formats import FORMATS
from dualstudent.export.model import (
    DeployedModel,
    ModelCard,
    describe_preprocessing,
    fold_state,
    make_plain,
)
from dualstudent.networks.build import build_network
from dualstudent.networks.cnn13 import CNN13Settings
from dualstudent.networks.network import NetworkSettings
from dualstudent.networks.quick_cnn import QuickCNNSettings
from dualstudent.networks.resnext import ResNeXt50Settings
from dualstudent.networks.shake_shake import ShakeShakeSettings

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)
NETWORKS = [
    (QuickCNNSettings(), 8),
    (CNN13Settings(), 12),
    pytest.param(ResNeXt50Settings(), 32, marks=pytest.mark.slow),
    pytest.param(ShakeShakeSettings(width=2), 8, marks=pytest.mark.slow),
]


def as_if_trained(network: nn.Module, size: int) -> nn.Module:
    """With batch norms that have seen something: in their first state they do nothing."""
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = 0.9
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias, std=0.3)
    network.train()(torch.rand(16, 3, size, size))
    return network.eval()


def card(settings: NetworkSettings, size: int) -> ModelCard:
    return ModelCard(
        classes=("cat", "dog", "Übergröße"),
        channels=3,
        image_size=size,
        preprocessing=describe_preprocessing(3, size),
        student="student1",
        test_error=10.0,
        network=make_plain(settings),
        normalization=Normalization(mean=MEAN, std=STD),
        recipe="",
        trained_with={},
        exported_with={},
    )


@pytest.mark.parametrize(
    ("settings", "size"), NETWORKS, ids=lambda value: getattr(value, "name", "")
)
def test_every_network_says_the_same_in_every_file(
    settings: NetworkSettings, size: int, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    network = as_if_trained(build_network(settings, 3, 3, size, seed=1, student=0), size)
    model = DeployedModel(card(settings, size))
    model.network.load_state_dict(fold_state(network))
    images = torch.randint(256, (5, 3, size, size), dtype=torch.uint8)
    scaled = (images / 255 - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    with torch.no_grad():
        expected = network(scaled).class_logits.softmax(dim=1)
    assert (expected - expected[0]).abs().max() > 1e-3  # not the same for all
    large = sum(tensor.numel() for tensor in model.state_dict().values()) > 1e7
    for name, file_format in FORMATS.items():
        if large and name == "torch-export":
            continue  # takes long, and is made on the way to ONNX
        path = tmp_path / name
        file_format.write(model, path)
        for part in (slice(0, 1), slice(None)):
            found = file_format.run(path, images[part])
            torch.testing.assert_close(found, expected[part], rtol=0, atol=1e-5)
