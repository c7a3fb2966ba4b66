from pathlib import Path

import torch
from torch import nn

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
