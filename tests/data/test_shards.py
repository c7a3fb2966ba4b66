"""The parts of a batch that several processes make are those of the batch that one makes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from dualstudent.batch import WHOLE, Shard
from dualstudent.data.batching.loader import BatchLoader, BatchSettings
from dualstudent.data.features import FeaturePerturbation, FeatureSamples, Standardization
from dualstudent.data.file_samples import FileSamples
from dualstudent.data.prepared import PreparedData
from dualstudent.data.samples import ImageSamples, Samples
from dualstudent.data.sources.imagenet import load_imagenet
from dualstudent.data.transforms.normalization import Normalization
from dualstudent.data.transforms.policy import Draw, Transform, Transforms
from dualstudent.generators import make_generator
from dualstudent.trunks.samples import KeptFeatures, KeptRows
from tests.support.imagenet import warns_of_the_count, write_imagenet

pytestmark = warns_of_the_count

COUNT = 24
EVERYTHING = Transform(
    translate=2,
    flip=True,
    noise=0.1,
    random_resized_crop=True,
    jitter=(0.4, 0.4, 0.4, 0.1),
    rotate=20,
    affine=(10, 0.1, 0.1, 0.1),
    randaugment=2,
    cutout=0.5,
)
SHARDS = [Shard(rank, 4) for rank in range(4)]
SCALE = Standardization(np.zeros(5), np.ones(5))


def make_images(channels: int) -> Samples:
    pixels = torch.randint(
        256, (COUNT, channels, 9, 9), dtype=torch.uint8, generator=make_generator("pixels")
    )
    return ImageSamples(pixels, Transforms(weak=EVERYTHING), Normalization())


def make_vectors() -> Samples:
    vectors = torch.rand(COUNT, 5, generator=make_generator("vectors"))
    return FeatureSamples(vectors, FeaturePerturbation(noise=0.5, dropout=0.3), SCALE)


def make_features() -> Samples:
    table = np.arange(COUNT * 15, dtype=np.float16).reshape(-1, 5)
    views = [KeptRows(table, np.arange(first, 3 * COUNT, 3)) for first in range(3)]
    clean = KeptRows(table, np.arange(COUNT))
    return KeptFeatures(make_images(3), clean, {"weak": views}, SCALE, "identity", "weights")


def interleave(parts: list[Tensor]) -> Tensor:
    return torch.stack(parts, dim=1).flatten(0, 1)


def view(samples: Samples, shard: Shard) -> Tensor:
    draw = Draw("weak", make_generator("view"), shard)
    (seen,) = samples.make_views(shard.select(torch.arange(COUNT).flip(0)), [draw])
    return seen


@pytest.mark.parametrize(
    "make",
    [lambda: make_images(1), lambda: make_images(3), make_vectors, make_features],
    ids=["gray", "color", "vectors", "features"],
)
def test_views_of_shards_are_those_of_the_whole(make: Callable[[], Samples]) -> None:
    samples = make()
    whole = view(samples, WHOLE)
    assert torch.equal(interleave([view(samples, shard) for shard in SHARDS]), whole)
    assert len(set(map(tuple, whole.flatten(1).tolist()))) == COUNT


def test_views_of_photos_in_shards_are_those_of_the_whole(tmp_path: Path) -> None:
    files = load_imagenet("train", write_imagenet(tmp_path))
    samples = FileSamples(files, 16, Transforms(weak=EVERYTHING), Normalization())
    whole = view(samples, WHOLE)
    assert torch.equal(interleave([view(samples, shard) for shard in SHARDS]), whole)


def test_processes_divide_the_streams_without_overlap_or_loss() -> None:
    samples, indices = make_images(1), torch.arange(COUNT)
    data = PreparedData(
        classes=("0", "1"),
        train=samples,
        labels=torch.where(indices < 8, indices % 2, -1),
        labeled=indices[:8],
        unlabeled=indices[8:],
        test=samples,
        test_labels=indices % 2,
    )
    settings = BatchSettings(size=12, labeled=4)
    alone, *processes = (
        BatchLoader(data, settings, seed=3, shard=shard) for shard in (WHOLE, *SHARDS)
    )
    for step in range(5):
        whole, parts = alone.batch(step), [each.batch(step) for each in processes]
        assert all(int(part.unlabeled.sum()) == 2 for part in parts)
        for name in ("indices", "labels", "unlabeled"):
            values = interleave([getattr(part, name) for part in parts])
            assert torch.equal(values, getattr(whole, name)), name
        for number, seen in enumerate(whole.views):
            assert torch.equal(interleave([part.views[number] for part in parts]), seen)


def test_a_loader_that_gathers_makes_the_whole_batch() -> None:
    samples, indices = make_vectors(), torch.arange(COUNT)
    data = PreparedData(
        classes=("0", "1"),
        train=samples,
        labels=torch.where(indices < 8, indices % 2, -1),
        labeled=indices[:8],
        unlabeled=indices[8:],
        test=samples,
        test_labels=indices % 2,
    )
    settings = BatchSettings(size=12, labeled=4)
    twice = BatchLoader(
        data, settings, seed=3, shard=Shard(0, 2), gather=lambda own: interleave([own, own])
    )
    batch = twice.batch(0)
    assert batch.unlabeled.tolist() == [True] * 8 + [False] * 4
    assert torch.equal(batch.indices[::2], batch.indices[1::2])
    assert torch.equal(batch.labels, data.labels[batch.indices])
