"""Sets of samples that make clean and perturbed views by index."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol, Self

import torch
from torch import Tensor

from dualstudent.data.broken import Tally
from dualstudent.data.transforms.normalization import Normalization, normalize
from dualstudent.data.transforms.policy import Draw, Transforms, perturb

_CHUNK = 1024  # images that are hashed together
_SHARE_OF_DEVICE = 1 / 4  # of free device memory for samples; networks and views need the rest


class Digest(Protocol):
    """A hash object of :mod:`hashlib`."""

    def update(self, data: bytes | memoryview, /) -> None: ...


class Samples(ABC):
    """A set of samples that makes views of any of them.

    Attributes:
        streamed: whether samples are read on demand; then raw views are made on the CPU and
            finished on the device.
        workers: number of processes that make views ahead of time.
        tally: counts the samples that cannot be read; None if all can.
        has_strong_views: whether anything perturbs strong views.
        margin: clean images are resized to ``margin`` · size, then cropped to their size.
        normalization: normalization of the pixel values; None if the samples are not images.
    """

    streamed: bool = False
    workers: int = 0
    tally: Tally | None = None
    has_strong_views: bool = False
    margin: float = 1.0
    normalization: Normalization | None = None

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample, (channels, H, W) for images."""

    @property
    @abstractmethod
    def value_range(self) -> float:
        """The largest possible value minus the smallest, after normalization."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def make_views(self, indices: Tensor, draws: Sequence[Draw | None]) -> list[Tensor]:
        """Make one view of the samples at ``indices`` for each entry of ``draws``.

        Args:
            indices: (B,) int64, preferably on the CPU.
            draws: perturbation of each view; None for a clean view.

        Returns:
            (B, *shape) float32 per view. Every sample is read once for all views.

        Raises:
            BrokenSamples: if samples cannot be read; names all of them.
        """

    def make_raw_views(self, indices: Tensor, draws: Sequence[Draw | None]) -> list[Tensor]:
        """Like :meth:`make_views`, in a form that is cheap to move between processes and devices.

        :meth:`finish_views` completes them.
        """
        return self.make_views(indices, draws)

    def finish_views(self, raw: list[Tensor]) -> list[Tensor]:
        """Complete raw views, on any device, to the result of :meth:`make_views`."""
        return raw

    def read_pixels(self, indices: Tensor) -> Tensor | None:
        """Return clean images (B, channels, H, W) uint8; None if the samples are not images."""
        return None

    @abstractmethod
    def update_digest(self, digest: Digest) -> None:
        """Add the content of all samples to ``digest``."""

    def preprocessing(self) -> dict[str, Tensor]:
        """Return name → tensor: statistics of these samples that new samples must be scaled by."""
        return {}

    @abstractmethod
    def to(self, device: torch.device | str) -> Self:
        """Return the same samples, whose views are made on ``device``."""


class ImageSamples(Samples):
    """Images of one size, in memory or in a memory-mapped file.

    Views are made on a device. All images are copied there if they take at most a quarter of its
    free memory; otherwise the bytes of every batch are. Both give the same views.

    Args:
        pixels: (N, channels, H, W) uint8.
        transforms: perturbations of weak and strong views.
        normalization: normalization of the pixel values.
        device: where views are made; default: the device of ``pixels``.
        rows: (n,) int64, the images to use, in this order; default: all. They are not copied, so
            that a mapped file may be larger than the memory.
        identity: bytes that differ if the images do, for the fingerprint; default: their pixels.

    Example:
        >>> black = torch.zeros(5, 1, 2, 2, dtype=torch.uint8)
        >>> from dualstudent import Transform
        >>> noise = Transforms(weak=Transform(noise=0.1))
        >>> samples = ImageSamples(black, noise, Normalization())
        >>> draw = Draw("weak", torch.Generator())
        >>> clean, noisy = samples.make_views(torch.tensor([3]), [None, draw])
        >>> clean.unique().item(), noisy.unique().numel()
        (-1.0, 4)
    """

    normalization: Normalization

    def __init__(
        self,
        pixels: Tensor,
        transforms: Transforms,
        normalization: Normalization,
        device: torch.device | None = None,
        rows: Tensor | None = None,
        identity: bytes | None = None,
    ) -> None:
        normalization.check_fits(pixels.shape[1])
        transforms.check_fits(*pixels.shape[1:])
        self.pixels, self._rows, self._device = pixels, rows, device or pixels.device
        self.transforms, self.normalization = transforms, normalization
        self._identity, self.has_strong_views = identity, not transforms.strong.is_empty

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.pixels.shape[1:])

    @property
    def value_range(self) -> float:
        return 1 / min(self.normalization.std)

    def __len__(self) -> int:
        return len(self.pixels if self._rows is None else self._rows)

    def make_views(self, indices: Tensor, draws: Sequence[Draw | None]) -> list[Tensor]:
        chosen = self._select(indices).to(self._device, non_blocking=True)
        return [
            normalize(chosen, self.normalization)
            if draw is None
            else perturb(
                chosen,
                self.transforms[draw.policy],
                self.normalization,
                draw.generator,
                draw.shard,
            )
            for draw in draws
        ]

    def read_pixels(self, indices: Tensor) -> Tensor:
        return self._select(indices).cpu()

    def update_digest(self, digest: Digest) -> None:
        if self._identity is not None:
            digest.update(self._identity)
            return
        digest.update(repr((len(self), *self.shape)).encode())
        for indices in torch.split(torch.arange(len(self)), _CHUNK):
            digest.update(self._select(indices).contiguous().numpy().data)

    def _select(self, indices: Tensor) -> Tensor:
        if self._rows is not None:
            indices = self._rows[indices.to(self._rows.device)]
        # Unlike indexing, this copies every image at once.
        return self.pixels.index_select(0, indices.to(self.pixels.device, non_blocking=True))

    def normalize_by(self, normalization: Normalization) -> Self:
        """Return the same images with another normalization."""
        views = (self.transforms, normalization)
        return type(self)(self.pixels, *views, self._device, self._rows, self._identity)

    def to(self, device: torch.device | str) -> Self:
        device = torch.device(device)
        free, pixels, rows = get_free_memory(device), self.pixels, self._rows
        fits = free is None or len(self) * pixels[:1].nbytes <= free * _SHARE_OF_DEVICE
        if fits and device != pixels.device:
            chosen = pixels if rows is None else pixels[rows]
            pixels, rows = chosen.to(device), None
        views = (self.transforms, self.normalization)
        return type(self)(pixels, *views, device, rows, self._identity)


def get_free_memory(device: torch.device) -> int | None:
    """Return the free bytes of a GPU; None for the CPU."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None


def hash_tensor(digest: Digest, tensor: Tensor) -> None:
    """Add shape and content of a tensor to ``digest``."""
    digest.update(repr(tuple(tensor.shape)).encode())
    digest.update(tensor.contiguous().numpy().data)
