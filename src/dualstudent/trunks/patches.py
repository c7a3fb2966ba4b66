"""Features of small images without any pretrained weights: which patches they have, and where.

Coates, Lee and Ng, "An analysis of single-layer networks in unsupervised feature learning" (AISTATS
2011): patches of the images are whitened and clustered; a patch answers to a center by how much
nearer it is than to centers on average; answers are summed over 3 × 3 regions of the image. The
square roots of these sums are reduced to their principal components. This is learned from the
images themselves within seconds, and on digits a few labels say much more by it than by pixels.
"""

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from dualstudent.generators import derive_seed, make_generator

SIDE = 32  # pixels a side that images are reduced to
_PATCH = 7  # pixels a side
_CENTERS, _REGIONS, _COMPONENTS = 200, 3, 128
_PATCHES = 40_000  # drawn to learn from
_CONTRAST, _WHITENING = 0.01, 0.1  # added to variances, so that flat patches stay small
AT_ONCE = 100  # images, which bounds memory


class PatchFeatures:
    """Maps images to feature vectors; is fitted to some images, without labels.

    Args:
        images: (N, channels, H, W) in [0, 1], of at least 7 pixels a side.
        seed: draws the patches.

    Example:
        >>> images = torch.rand(60, 1, 8, 8, generator=torch.Generator().manual_seed(0))
        >>> PatchFeatures(images)(images[:2]).shape
        (2, 60)
    """

    def __init__(self, images: Tensor, seed: int = 0) -> None:
        from sklearn.cluster import MiniBatchKMeans
        from sklearn.decomposition import PCA

        patches = _draw_patches(images, make_generator(seed, "patches"))
        self._mean = patches.mean(dim=0)
        values, vectors = torch.linalg.eigh(torch.cov((patches - self._mean).T))
        self._whitening = (vectors / (values.clamp(min=0) + _WHITENING).sqrt()) @ vectors.T
        white = ((patches - self._mean) @ self._whitening).numpy()
        clusters = MiniBatchKMeans(
            min(_CENTERS, len(white)),
            batch_size=2048,
            n_init=1,
            max_iter=30,
            random_state=derive_seed(seed, "centers") % 2**32,
        ).fit(white)
        self._centers = torch.from_numpy(clusters.cluster_centers_).float()
        pooled = self._pool(images)
        components = min(_COMPONENTS, *pooled.shape)
        self._reduce = PCA(components, random_state=0).fit(pooled)

    def __call__(self, images: Tensor) -> NDArray[np.float32]:
        """Compute the features (N, at most 128) of images (N, channels, H, W) in [0, 1]."""
        vectors: NDArray[np.float32] = self._reduce.transform(self._pool(images))
        return vectors.astype(np.float32)

    def _pool(self, images: Tensor) -> NDArray[np.float32]:
        parts = [self._pool_some(some) for some in torch.split(images, AT_ONCE)]
        return torch.cat(parts).sqrt().numpy()

    def _pool_some(self, images: Tensor) -> Tensor:
        height, width = (side - _PATCH + 1 for side in images.shape[2:])
        patches = _normalize(F.unfold(images, _PATCH).transpose(1, 2))
        distances = torch.cdist((patches - self._mean) @ self._whitening, self._centers)
        answers = (distances.mean(dim=2, keepdim=True) - distances).clamp(min=0)
        maps = answers.transpose(1, 2).reshape(len(images), -1, height, width)
        regions = (min(_REGIONS, height), min(_REGIONS, width))
        return F.adaptive_avg_pool2d(maps, regions).flatten(1)


def compute_patch_features(images: Iterable[Tensor], seed: int = 0) -> NDArray[np.float32] | None:
    """Compute the features of images that are fitted to these very images.

    Args:
        images: pixels (n, channels, H, W), uint8, in parts; large ones are reduced first.
        seed: draws the patches.

    Returns:
        (N, at most 128); None where no patch shows anything, or all images are the same.

    Example:
        >>> noise = torch.rand(60, 1, 8, 8, generator=torch.Generator().manual_seed(0))
        >>> vectors = compute_patch_features([(255 * noise).byte()])
        >>> vectors.shape, compute_patch_features([torch.zeros(60, 1, 8, 8).byte()])
        ((60, 60), None)
        >>> colors = torch.eye(3).reshape(3, 3, 1, 1).expand(-1, -1, 8, 8)  # red, green, blue
        >>> len(np.unique(compute_patch_features([(255 * colors).byte()]).round(2), axis=0))
        3
    """
    small = torch.cat([_reduce(some) for some in images])
    flat = small.amax(dim=(1, 2, 3)) == small.amin(dim=(1, 2, 3))
    if min(small.shape[2:]) < _PATCH or flat.all() or (small == small[0]).all():
        return None
    return PatchFeatures(small, seed)(small)


def _reduce(pixels: Tensor) -> Tensor:
    """Scale images to [0, 1], and large ones to 32 pixels a side."""
    images, largest = pixels.float() / 255, max(pixels.shape[2:])
    if largest <= SIDE:
        return images
    return F.interpolate(images, scale_factor=SIDE / largest, mode="area")


def _draw_patches(images: Tensor, generator: torch.Generator) -> Tensor:
    """Draw normalized patches (n, channels · 49), those that show something."""
    every = max(1, len(images) * (images.shape[2] - _PATCH + 1) ** 2 // (4 * _PATCHES))
    pieces = []
    for some in torch.split(images, AT_ONCE):
        patches = F.unfold(some, _PATCH).transpose(1, 2).flatten(0, 1)
        order = torch.randperm(len(patches), generator=generator)[: len(patches) // every + 1]
        pieces.append(patches[order])
    patches = torch.cat(pieces)
    visible = patches[patches.std(dim=1) > 0.05]
    return _normalize((visible if len(visible) > _CENTERS else patches)[:_PATCHES])


def _normalize(patches: Tensor) -> Tensor:
    """Scale patches (…, d) to mean 0 and variance 1, flat ones to less."""
    centered = patches - patches.mean(dim=-1, keepdim=True)
    return centered / (centered.var(dim=-1, keepdim=True, correction=0) + _CONTRAST).sqrt()
