import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dualstudent import (
    Draw,
    FeaturePerturbation,
    FrozenTrunk,
    Interrupted,
    Normalization,
    PreparedData,
    Transform,
    Transforms,
    UserError,
    keep_features,
    make_generator,
    prepare_arrays,
)
from dualstudent.trunks.samples import KeptFeatures

SIDE, FEATURES = 6, 5
VIEWS = Transforms(weak=Transform(translate=1, flip=True), strong=Transform(noise=0.3))


class Counting(nn.Module):
    """Pools a convolution, and counts the images that it sees."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.weight = nn.Parameter(
            torch.randn(FEATURES, 3, 3, 3, generator=make_generator(seed, "trunk"))
        )
        self.lock, self.seen = threading.Lock(), 0
        self.sizes = set[int]()

    def forward(self, images: Tensor) -> Tensor:
        with self.lock:
            self.seen += len(images)
            self.sizes |= set(images.shape[2:])
        return nn.functional.conv2d(images, self.weight).relu().mean(dim=(2, 3))


def make_data(count: int = 40, test: int = 7, first: int = 0) -> PreparedData:
    """Images that differ; those of a longer set begin with those of a shorter one."""
    images = np.stack(
        [
            np.random.default_rng(number).integers(0, 256, (SIDE, SIDE, 3), np.uint8)
            for number in range(first, first + count + test)
        ]
    )
    labels = [0, 1] + [-1] * (count - 2)
    known = (images[count:], [0, 1] * (test // 2) + [0] * (test % 2)) if test else None
    return prepare_arrays(images[:count], labels, known, VIEWS)


def expected_features(data: PreparedData, module: nn.Module) -> Tensor:
    """Features of the clean images in half precision, centered, on one scale, in NumPy."""
    (images,) = data.train.make_views(torch.arange(len(data.train)), [None])
    with torch.no_grad():
        vectors = module(images).half().double().numpy()
    centered = vectors - vectors.mean(axis=0)
    return torch.from_numpy(centered / np.sqrt((centered**2).mean()))


def all_clean(data: PreparedData) -> Tensor:
    return data.train.make_views(torch.arange(len(data.train)), [None])[0]


def all_views(data: PreparedData, policy: str, seed: int = 0) -> Tensor:
    """Views of all training images, drawn many times: (draws, N, features)."""
    draws = [Draw(policy, make_generator(seed, number)) for number in range(40)]  # type: ignore[arg-type]
    return torch.stack(data.train.make_views(torch.arange(len(data.train)), draws))


def test_clean_features_are_those_of_the_trunk_on_one_scale(tmp_path: Path) -> None:
    data, module = make_data(), Counting()
    kept = keep_features(data, FrozenTrunk(module, FEATURES), folder=tmp_path)
    assert isinstance(kept.train, KeptFeatures)
    found, expected = all_clean(kept), expected_features(data, module)
    torch.testing.assert_close(found, expected.float(), atol=1e-4, rtol=1e-4)
    assert torch.equal(kept.labels, data.labels)
    assert kept.train.shape == (FEATURES,)
    assert kept.train.value_range == pytest.approx(float(expected.max() - expected.min()), 1e-4)


def test_test_images_are_scaled_like_training_images(tmp_path: Path) -> None:
    data, module = make_data(), Counting()
    kept = keep_features(data, FrozenTrunk(module, FEATURES), folder=tmp_path)
    (images,) = data.test.make_views(torch.arange(7), [None])
    (vectors,) = kept.test.make_views(torch.arange(7), [None])
    scale = kept.train.preprocessing()
    with torch.no_grad():
        expected = (module(images).half().double() - scale["mean"]) / scale["std"]
    torch.testing.assert_close(vectors.double(), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("policy", "count"), [("weak", 3), ("strong", 4)])
def test_as_many_views_as_asked_for_are_drawn_evenly(
    policy: str, count: int, tmp_path: Path
) -> None:
    trunk = FrozenTrunk(Counting(), FEATURES)
    kept = keep_features(make_data(), trunk, 3, 4, folder=tmp_path)
    views, clean = all_views(kept, policy), all_clean(kept)
    for index in range(5):
        rows, shares = np.unique(views[:, index].numpy(), axis=0, return_counts=True)
        assert len(rows) == count
        assert shares.min() > 1  # of 40 draws
    assert (views != clean).any(dim=2).float().mean() > 0.5


def test_features_that_were_not_used_for_long_are_still_read(tmp_path: Path) -> None:
    trunk, long_ago = FrozenTrunk(Counting(), FEATURES), 40 * 24 * 3600.0
    kept = keep_features(make_data(), trunk, 1, 1, folder=tmp_path)
    for folder in tmp_path.glob("features-*"):
        os.utime(folder, (folder.stat().st_atime - long_ago, folder.stat().st_mtime - long_ago))
    again = keep_features(make_data(), trunk, 1, 1, folder=tmp_path)
    assert torch.equal(all_clean(again), all_clean(kept))


def test_features_that_are_not_finite_are_refused_and_not_kept(tmp_path: Path) -> None:
    module = Counting()
    with torch.no_grad():
        module.weight.fill_(1e6)
    with pytest.raises(UserError, match="not finite"):
        keep_features(make_data(), FrozenTrunk(module, FEATURES), 1, 0, folder=tmp_path)
    assert all(not keys.stat().st_size for keys in tmp_path.glob("features-*/keys"))


def test_views_in_bfloat16_and_clean_images_in_full_precision(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Conv2d(3, FEATURES, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    trunk, data = FrozenTrunk(module, FEATURES), make_data()
    exact = keep_features(data, trunk, 1, 1, folder=tmp_path)
    rounded = keep_features(data, trunk, 1, 1, precision="bf16-true", folder=tmp_path)
    assert torch.equal(all_clean(rounded), all_clean(exact))
    for policy in ("weak", "strong"):
        off = (all_views(rounded, policy)[0] - all_views(exact, policy)[0]).abs()
        assert 0 < off.mean() < 0.02  # of a standard deviation of 1; bfloat16 has 8 bits
    assert next(module.parameters()).dtype == torch.float32


def test_views_are_those_of_the_transforms(tmp_path: Path) -> None:
    """One weak view per image: a flip and a shift that some generator would draw as well."""
    data = make_data(6, 0)
    module = Counting()
    data = prepare_arrays(
        data.train.read_pixels(torch.arange(6)).permute(0, 2, 3, 1).numpy(),  # type: ignore[union-attr]
        [0, 1, -1, -1, -1, -1],
        transforms=Transforms(weak=Transform(flip=True)),
    )
    kept = keep_features(data, FrozenTrunk(module, FEATURES), 8, folder=tmp_path)
    (images,) = data.train.make_views(torch.arange(6), [None])
    scale = kept.train.preprocessing()
    with torch.no_grad():
        both = torch.stack([module(images), module(images.flip(3))]).half().double()
    both = ((both - scale["mean"]) / scale["std"]).float()
    views = all_views(kept, "weak")
    near = ((views[:, None] - both).abs() < 1e-3).all(dim=3)  # draw, mirrored, image
    assert near.any(dim=1).all()
    assert near.any(dim=0).all()  # 8 views of an image are all alike in 1 of 128 images


def test_nothing_is_computed_twice(tmp_path: Path) -> None:
    first, again = Counting(), Counting()
    kept = keep_features(make_data(), FrozenTrunk(first, FEATURES), 2, 3, folder=tmp_path)
    assert first.seen == 40 * (1 + 2 + 3) + 7 * 2
    same = keep_features(make_data(), FrozenTrunk(again, FEATURES), 2, 3, folder=tmp_path)
    assert again.seen == 0
    assert torch.equal(all_clean(same), all_clean(kept))
    assert torch.equal(all_views(same, "strong"), all_views(kept, "strong"))
    assert same.fingerprint() == kept.fingerprint()


def test_only_new_images_and_new_views_are_computed(tmp_path: Path) -> None:
    keep_features(make_data(40, 0), FrozenTrunk(Counting(), FEATURES), 1, 1, folder=tmp_path)
    module = Counting()
    keep_features(make_data(50, 0), FrozenTrunk(module, FEATURES), 1, 1, folder=tmp_path)
    assert module.seen == 10 * 3
    module.seen = 0
    keep_features(make_data(50, 0), FrozenTrunk(module, FEATURES), 1, 2, folder=tmp_path)
    assert module.seen == 50


def test_an_image_has_the_same_views_wherever_it_is(tmp_path: Path) -> None:
    trunk = FrozenTrunk(Counting(), FEATURES)
    here = keep_features(make_data(20, 0), trunk, 1, folder=tmp_path / "a")
    there = keep_features(make_data(20, 0, first=10), trunk, 1, folder=tmp_path / "b")
    scales = [each.train.preprocessing() for each in (here, there)]
    views = [all_views(each, "weak")[0].double() for each in (here, there)]
    raw = [v * s["std"] + s["mean"] for v, s in zip(views, scales, strict=True)]
    torch.testing.assert_close(raw[0][10:], raw[1][:10], atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("change", ["weights", "structure", "normalization", "size", "seed"])
def test_another_trunk_or_seed_has_its_own_features(change: str, tmp_path: Path) -> None:
    keep_features(make_data(), FrozenTrunk(Counting(), FEATURES), 1, 0, folder=tmp_path)
    module = Counting(seed=int(change == "weights"))
    inner: nn.Module = nn.Sequential(module) if change == "structure" else module
    normalization = Normalization(mean=(0.1,)) if change == "normalization" else None
    trunk = FrozenTrunk(inner, FEATURES, normalization, 8 if change == "size" else None)
    kept = keep_features(make_data(), trunk, 1, 0, int(change == "seed"), folder=tmp_path)
    assert module.seen == (1 if change == "seed" else 2) * (40 + 7)  # clean ones have no seed
    assert module.sizes == {8 if change == "size" else SIDE}
    (images,) = make_data().train.make_views(torch.arange(40), [None])
    if change == "normalization":
        expected = (images * 0.5 + 0.5 - 0.1) / 0.5
        kept_images = kept.train.images.make_views(torch.arange(40), [None])[0]  # type: ignore[attr-defined]
        torch.testing.assert_close(kept_images, expected)


def test_methods_get_what_the_transforms_say(tmp_path: Path) -> None:
    trunk = FrozenTrunk(Counting(), FEATURES)
    images = np.random.default_rng(0).integers(0, 256, (4, SIDE, SIDE, 3), np.uint8)
    plain = keep_features(prepare_arrays(images, [0, 1, -1, -1]), trunk, folder=tmp_path)
    assert not plain.train.has_strong_views
    assert torch.equal(all_views(plain, "weak")[0], all_clean(plain))  # nothing perturbs them
    assert keep_features(make_data(), trunk, folder=tmp_path).train.has_strong_views


class Stop(NamedTuple):
    """Asks for a stop after so many views."""

    after: int
    steps: list[tuple[int, int]]

    def on_start(self, step: int, total: int) -> None:
        self.steps.append((step, total))

    def on_step(self, step: int) -> None:
        self.steps.append((step, 0))
        if step >= self.after:
            signal.raise_signal(signal.SIGTERM)


def test_an_interrupted_computation_goes_on_where_it_was(tmp_path: Path) -> None:
    whole = keep_features(make_data(), FrozenTrunk(Counting(), FEATURES), 2, 2, folder=tmp_path)
    other, module, stop = tmp_path / "other", Counting(), Stop(100, [])
    with pytest.raises(Interrupted, match="of 214 views"):
        keep_features(make_data(), FrozenTrunk(module, FEATURES), 2, 2, folder=other, progress=stop)
    assert stop.steps[0] == (0, 214)
    done = stop.steps[-1][0]
    assert 100 <= done < 130
    again = Counting()
    kept = keep_features(make_data(), FrozenTrunk(again, FEATURES), 2, 2, folder=other)
    assert again.seen == 214 - done
    for policy in ("weak", "strong"):
        assert torch.equal(all_views(kept, policy), all_views(whole, policy))


def test_progress_reaches_the_total(tmp_path: Path) -> None:
    stop = Stop(10**6, [])
    data = make_data(40, 0)
    trunk = FrozenTrunk(Counting(), FEATURES)
    keep_features(data, trunk, 1, 1, folder=tmp_path, progress=stop)
    assert stop.steps[0] == (0, 120)
    assert stop.steps[-1][0] == 120
    assert [step for step, _ in stop.steps] == sorted(step for step, _ in stop.steps)


def cut_features(store: Path) -> None:
    content = (store / "features").read_bytes()
    (store / "features").write_bytes(content[: len(content) // 2 + 3])


def lengthen_features(store: Path) -> None:
    with (store / "features").open("ab") as file:
        file.write(b"left by a killed process")


def empty_keys(store: Path) -> None:
    (store / "keys").write_bytes(b"")


@pytest.mark.parametrize("damage", [cut_features, lengthen_features, empty_keys])
def test_a_damaged_cache_is_completed(damage: Callable[[Path], None], tmp_path: Path) -> None:
    trunk = FrozenTrunk(Counting(), FEATURES)
    expected = all_clean(keep_features(make_data(), trunk, 1, 0, folder=tmp_path))
    for store in tmp_path.glob("features-*"):
        damage(store)
    for data in (make_data(), make_data(45, 0)):
        found = all_clean(keep_features(data, trunk, 1, 0, folder=tmp_path))
        assert len(found) == len(data.labels)
    found = all_clean(keep_features(make_data(), trunk, 1, 0, folder=tmp_path))
    torch.testing.assert_close(found, expected)


def test_copies_are_computed_once(tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(0, 256, (2, SIDE, SIDE, 3), np.uint8)
    data = prepare_arrays(image[[0, 1, 0, 0]], [0, 1, -1, -1])
    module = Counting()
    kept = keep_features(data, FrozenTrunk(module, FEATURES), folder=tmp_path)
    assert module.seen == 2
    rows = all_clean(kept)
    assert torch.equal(rows[0], rows[2])
    assert not torch.equal(rows[0], rows[1])


def test_a_full_disk_is_refused_before_anything_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = Counting()
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(UserError, match=r"need .* GB in .* keep fewer views"):
        keep_features(make_data(), FrozenTrunk(module, FEATURES), folder=tmp_path)
    assert module.seen == 0
    assert not list(tmp_path.glob("features-*"))


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (nn.Conv2d(3, FEATURES, 3), r"returns maps \(4, 5, 4, 4\), not vectors .*Flatten"),
        (nn.Flatten(), r"returns \(4, 108\), not \(4, 5\)"),
        (nn.LSTM(6, 2), "returns tuple, not a tensor"),
    ],
)
def test_a_trunk_that_gives_no_vectors_is_refused_and_nothing_is_kept(
    module: nn.Module, said: str, tmp_path: Path
) -> None:
    if isinstance(module, nn.LSTM):
        module = nn.Sequential(nn.Flatten(0, 1), module, nn.Identity())
    with pytest.raises(UserError, match=said):
        keep_features(make_data(), FrozenTrunk(module, FEATURES), folder=tmp_path)
    assert all(path.stat().st_size == 0 for path in tmp_path.glob("*/*"))


def test_feature_vectors_are_refused(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(4, 3))
    data = prepare_arrays(vectors, [0, 1, -1, -1], perturbation=FeaturePerturbation(noise=0.1))
    with pytest.raises(UserError, match="a trunk needs images"):
        keep_features(data, FrozenTrunk(Counting(), FEATURES), folder=tmp_path)


def test_the_number_of_threads_is_restored(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    keep_features(make_data(), FrozenTrunk(Counting(), FEATURES), 1, 0, folder=tmp_path)
    assert torch.get_num_threads() == before
