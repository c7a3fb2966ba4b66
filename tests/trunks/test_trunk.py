from pathlib import Path

import pytest
import torch
from torch import nn

from dualstudent import UserError
from dualstudent.generators import seeded_rng
from dualstudent.networks import EfficientNetLite0
from dualstudent.trunks.trunk import FrozenTrunk, TrunkSettings, build_trunk
from tests.support.trunk_weights import save_weights


@torch.no_grad()
def test_the_trunk_is_fused_and_gives_the_features_of_the_network(tmp_path: Path) -> None:
    network = save_weights(path := tmp_path / "mine.pt")
    settings = TrunkSettings(name="efficientnet-lite0", weights=str(path), image_size=40)
    trunk = build_trunk(settings, 3)
    assert not any(isinstance(layer, nn.BatchNorm2d) for layer in trunk.modules())
    with seeded_rng("images"):
        images = torch.rand(3, 3, 40, 40)
    expected = network.features(images)
    assert expected.std(dim=0).max() > 1e-2  # it tells images apart
    torch.testing.assert_close(trunk(images), expected, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_two_networks_give_the_features_of_both() -> None:
    def build(name: str) -> FrozenTrunk:
        settings = {"name": name, "weights": "random", "image_size": 32}
        return build_trunk(TrunkSettings.model_validate(settings), 3)

    first, second, both = map(build, (f"efficientnet-lite{end}" for end in ("0", "2", "0+2")))
    images = torch.rand(3, 3, 32, 32)
    expected = torch.cat([first(images), second(images)], dim=1)
    assert (both.features, both(images).shape) == (2560, (3, 2560))
    torch.testing.assert_close(both(images), expected)
    assert len({trunk.fingerprint for trunk in (first, second, both)}) == 3


def test_two_networks_cannot_have_one_file_of_weights(tmp_path: Path) -> None:
    save_weights(path := tmp_path / "mine.pt")
    settings = TrunkSettings(name="efficientnet-lite0+2", weights=str(path), image_size=32)
    with pytest.raises(UserError, match=r"is for one network, and 'efficientnet-lite0\+2' are 2"):
        build_trunk(settings, 3)


def test_fingerprints_are_those_of_the_weights_as_published() -> None:
    settings = TrunkSettings(name="efficientnet-lite0", weights="random", image_size=32)
    built = build_trunk(settings, 3)
    with seeded_rng(0, "initial state", 0):
        network = EfficientNetLite0(weights="random")
    pooled = nn.Sequential(network.trunk, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    whole = FrozenTrunk(pooled, 1280, image_size=32)
    assert (built.fingerprint, built.checksum) == (whole.fingerprint, whole.checksum)
    larger = FrozenTrunk(pooled, 1280, image_size=64)
    assert larger.fingerprint != whole.fingerprint
    assert larger.checksum == whole.checksum
