"""Computes the features of a trunk once for every image and view, and keeps them on disk."""

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from dualstudent.batch import Policy
from dualstudent.data.features import Standardization
from dualstudent.data.images.cache import remove_unused
from dualstudent.data.paths import find_cache_folder
from dualstudent.data.prepared import PreparedData
from dualstudent.data.samples import ImageSamples, Samples
from dualstudent.data.transforms.normalization import Normalization
from dualstudent.data.transforms.policy import Draw, Transforms
from dualstudent.errors import UserError
from dualstudent.generators import make_generator
from dualstudent.parallel import Progress, count_cores, map_threads, one_thread_each
from dualstudent.signals import Interrupted, StopRequest
from dualstudent.trunks.samples import KeptFeatures, KeptRows, pick_some
from dualstudent.trunks.store import KEY, FeatureStore
from dualstudent.trunks.trunk import PIECE, FrozenTrunk, Precision

_VERSION = 1  # of the way in which views are made
_READ = 256  # images that are read together


def keep_features(
    data: PreparedData,
    trunk: FrozenTrunk,
    weak_views: int = 4,
    strong_views: int = 4,
    seed: int = 0,
    *,
    precision: Precision = "32-true",
    progress: Progress | None = None,
    folder: Path | None = None,
    device: torch.device | str = "cpu",
) -> PreparedData:
    """Replace images by features: of the clean images, and of some weak and strong views.

    They are computed on all cores and kept in half precision, by trunk, view settings and content
    of the image. So only new images, other views or another trunk take time. The views of an image
    are a function of (seed, view, pixels).

    Args:
        data: images in memory or in a memory-mapped file.
        trunk: maps normalized images to feature vectors.
        weak_views: number of weak views of every training image; test images have one.
        strong_views: number of strong views of every training image.
        seed: seed of the views.
        precision: of the trunk for weak and strong views; clean images always have the full one.
        progress: receives the number of views that are done.
        folder: cache folder; default: $DUALSTUDENT_CACHE, else the user's cache folder.
        device: device of the trunk.

    Returns:
        The same data with standardized feature vectors as samples, for the network ``mlp``.

    Raises:
        UserError: if there are no images, the disk is too small, or the trunk does not fit.
        Interrupted: after Ctrl-C, SIGTERM or SIGHUP; what has been computed is kept.
    """
    cache, trunk = find_cache_folder(folder), trunk.to(device)
    plan = partial(_plan, trunk=trunk, seed=seed, precision=precision, cache=cache)
    train = plan(data.train, weak_views, strong_views)
    test = plan(data.test, 1, 0)
    try:
        _compute_missing([*train, *test], trunk, cache, progress)
    except OSError as error:
        raise UserError(
            f"cannot write to {cache}: {error.strerror}; make space there, or set "
            "DUALSTUDENT_CACHE to a folder of yours"
        ) from error
    clean = train[0].open()
    scale = Standardization.measure_jointly(clean.take(pick_some(len(clean.rows))))
    collect = partial(_collect, scale=scale, weights=trunk.checksum)
    kept = replace(data, train=collect(train), test=collect(test))
    remove_unused(cache, "features-*")  # last: those that have just been opened are in use
    return kept


def keep_clean_features(
    pixels: torch.Tensor, trunk: FrozenTrunk, folder: Path | None = None
) -> NDArray[np.float32]:
    """Return the features (N, features) of clean images, not standardized; they are kept.

    Args:
        pixels: (N, channels, H, W) uint8.
        trunk: maps normalized images to feature vectors.
        folder: cache folder; default: $DUALSTUDENT_CACHE, else the user's cache folder.

    Raises:
        UserError: if the disk is too small, or the trunk does not fit.
    """
    cache = find_cache_folder(folder)
    images = ImageSamples(pixels, Transforms(), trunk.normalization or Normalization())
    (view,) = _plan(images, 0, 0, trunk, 0, "32-true", cache)
    _compute_missing([view], trunk, cache, progress=None)
    return view.open().take(np.arange(len(pixels)))


@dataclass(frozen=True)
class _View:
    """One view of some images.

    Attributes:
        images: the N images.
        keys: N hashes of their pixels.
        policy: of the view; None if it is clean.
        precision: of the trunk.
        seed: seed of the views.
        number: number of the view.
        name: of the folder of its features.
        store: its features.
    """

    images: ImageSamples
    keys: Sequence[bytes]
    policy: Policy | None
    precision: Precision
    seed: int
    number: int
    name: str
    store: FeatureStore

    def find_missing(self) -> list[int]:
        """Find the images without features, and one of all that are equal."""
        missing = (self.store.find(self.keys) < 0).nonzero()[0].tolist()
        return list({self.keys[index]: index for index in reversed(missing)}.values())[::-1]

    def open(self) -> KeptRows:
        return KeptRows(self.store.open(), self.store.find(self.keys))

    def compute(self, trunk: FrozenTrunk) -> Iterator[int]:
        """Compute what is missing, chunk by chunk; yields the number of images of each chunk."""
        device = next((p.device for p in trunk.parameters()), torch.device("cpu"))
        workers = count_cores() if device.type == "cpu" else 1
        work = partial(self._compute_chunk, trunk.convert(self.precision), device)
        with self.store.lock() as append:
            new = self.find_missing()  # again: another process may have added them
            chunks = [new[start : start + PIECE] for start in range(0, len(new), PIECE)]
            with map_threads(work, chunks, workers) as results:
                for chunk, vectors in zip(chunks, results, strict=True):
                    append([self.keys[index] for index in chunk], vectors)
                    yield len(chunk)

    @torch.inference_mode()
    def _compute_chunk(
        self, trunk: FrozenTrunk, device: torch.device, chunk: list[int]
    ) -> NDArray[np.float16]:
        views = torch.cat([self._make_view(index) for index in chunk])
        vectors: NDArray[np.float16] = trunk(views.to(device)).half().cpu().numpy()
        if not np.isfinite(vectors).all():
            raise UserError(
                "the trunk returns features that are not finite, or above 65,504; check its weights"
            )
        return vectors

    def _make_view(self, index: int) -> torch.Tensor:
        draw = None
        if self.policy is not None:
            purpose = (self.seed, "kept view", self.policy, self.number, self.keys[index].hex())
            draw = Draw(self.policy, make_generator(*purpose))
        (view,) = self.images.make_views(torch.tensor([index]), [draw])
        return view


def _plan(
    samples: Samples,
    weak: int,
    strong: int,
    trunk: FrozenTrunk,
    seed: int,
    precision: Precision,
    cache: Path,
) -> list[_View]:
    """List all views of some images, the clean one first."""
    if isinstance(samples, KeptFeatures):
        samples = samples.images
    if not isinstance(samples, ImageSamples):
        raise UserError(
            "a trunk needs images in memory or your own images; these data are feature vectors, "
            "or photos that are read on demand"
        )
    images = samples.normalize_by(trunk.normalization or samples.normalization)
    keys, fingerprint, views = _hash_images(images), trunk.fingerprint, list[_View]()
    counts: dict[Policy | None, int] = {None: 1, "weak": weak, "strong": strong}
    for policy, count in counts.items():
        transform = None if policy is None else images.transforms[policy]
        if transform is not None and transform.is_empty:
            continue  # such views are clean
        # Clean images in full precision, so that a model is tested as it will answer.
        chosen: Precision = "32-true" if policy is None else precision
        how = (_VERSION, fingerprint, chosen, images.normalization, images.shape, transform)
        for number in range(count):
            settings = repr(how if policy is None else (*how, seed, policy, number))
            name = f"features-{hashlib.blake2b(settings.encode(), digest_size=12).hexdigest()}"
            store = FeatureStore(cache / name, trunk.features)
            views.append(_View(images, keys, policy, chosen, seed, number, name, store))
    return views


def _hash_images(images: ImageSamples) -> list[bytes]:
    return [
        hashlib.blake2b(image.contiguous().numpy().data, digest_size=KEY).digest()
        for indices in torch.split(torch.arange(len(images)), _READ)
        for image in images.read_pixels(indices)
    ]


def _compute_missing(
    views: Sequence[_View], trunk: FrozenTrunk, cache: Path, progress: Progress | None
) -> None:
    missing = [len(view.find_missing()) for view in views]
    total, done = sum(missing), 0
    if total == 0:
        return
    cache.mkdir(parents=True, exist_ok=True)
    _check_space(cache, total * (2 * trunk.features + KEY))
    if progress is not None:
        progress.on_start(0, total)
    with StopRequest() as stop, one_thread_each():
        for view, planned in zip(views, missing, strict=True):
            before = done
            with closing(view.compute(trunk)) as chunks:  # type: ignore[type-var]
                for count in chunks:
                    done += count
                    if progress is not None:
                        progress.on_step(done)
                    if stop.received:
                        said = f"{done:,} of {total:,} views"
                        raise Interrupted(stop.received, said, "the same command")
            done = before + planned  # also if another process, or another part, had them
    if progress is not None:
        progress.on_step(total)


def _check_space(cache: Path, needed: int) -> None:
    free = shutil.disk_usage(cache).free
    if needed > free:
        raise UserError(
            f"the features need {needed / 1e9:.2g} GB in {cache}, where {free / 1e9:.2g} GB are "
            "free; keep fewer views (trunk.weak_views, trunk.strong_views), make space, or set "
            "DUALSTUDENT_CACHE to another folder"
        )


def _collect(views: Sequence[_View], scale: Standardization, weights: str) -> KeptFeatures:
    clean, *others = views
    kept: dict[str, list[KeptRows]] = {"weak": [], "strong": []}
    for view in others:
        kept[str(view.policy)].append(view.open())
    identity = " ".join(view.name for view in views)
    return KeptFeatures(clean.images, clean.open(), kept, scale, identity, weights)
