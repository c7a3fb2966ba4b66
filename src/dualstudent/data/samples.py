"""Samples by index, as networks see them: clean, or perturbed views."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol, Self

import torch
from torch import Tensor

from dualstudent.data.batching.broken import Tally
from dualstudent.data.transforms.normalization import Normalization, normalize
from dualstudent.data.transforms.policy import Draw, Transforms, perturb

_CHUNK = 1024  # images that are hashed together
_SHARE_OF_DEVICE = 1 / 4  # of its free memory, for samples; networks and views need the rest


class Digest(Protocol):
    """What hashlib's hashes have in common."""

    def update(self, data: bytes | memoryview, /) -> None: ...


class Samples(ABC):
    """A set of samples that hands out floats for the indices asked for, and for no others.

    Attributes:
        streamed: whether samples are read when they are asked for; then views are made on the
            CPU, and brought to the device unfinished.
        workers: how many processes should make views ahead of time.
        tally: of the samples that cannot be read; None if all can.
    """

    streamed: bool = False
    workers: int = 0
    tally: Tally | None = None

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Of one sample, (channels, H, W) for images."""

    @property
    @abstractmethod
    def value_range(self) -> float:
        """The largest possible value minus the smallest, as networks see them."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def make_views(self, indices: Tensor, draws: Sequence[Draw | None]) -> list[Tensor]:
        """One tensor of the samples at ``indices`` per entry of ``draws``.

        Args:
            indices: (B,) int64, best on the CPU, from which they are brought to the samples.
            draws: what perturbs each view; None asks for the clean samples.

        Returns:
            (B, *shape) float32 each. Every sample is read once, however many views there are.

        Raises:
            BrokenSamples: names all that cannot be read.
        """

    def make_raw_views(self, indices: Tensor, draws: Sequence[Draw | None]) -> list[Tensor]:
        """Like :meth:`make_views`, in the form that travels best between processes and devices."""
        return self.make_views(indices, draws)

    def finish_views(self, unfinished: list[Tensor]) -> list[Tensor]:
        """What :meth:`make_views` would have given, from unfinished views on any device."""
        return unfinished

    def read_pixels(self, indices: Tensor) -> Tensor | None:
        """(B, channels, H, W) uint8: clean samples to look at; None if they are no images."""
        return None

    @abstractmethod
    def update_digest(self, digest: Digest) -> None:
        """Feed ``digest`` with all that makes these samples what they are."""

    def preprocessing(self) -> dict[str, Tensor]:
        """Name → what was measured on these samples and must be known to bring others to them."""
        return {}

    @abstractmethod
    def to(self, device: torch.device | str) -> Self:
        """The same samples, their views made on ``device``."""


class ImageSamples(Samples):
    """Images of one size in memory, or mapped from a file, as bytes, once.

    Views are made on a device. The images are brought there as a whole if they take no more than
    a quarter of its free memory; else they stay where they are, and the bytes of every batch
    are brought there. Both give the same views: all is drawn on the device.

    Args:
        pixels: (N, channels, H, W) uint8.
        transforms: what perturbs a weak and a strong view.
        normalization: of the pixel values.
        device: where views are made; default: where the pixels are.
        rows: (n,) int64, the images to take, in this order; default: all. They are not copied, so
            that pixels may be mapped from a file that is larger than the memory.

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

    def __init__(
        self,
        pixels: Tensor,
        transforms: Transforms,
        normalization: Normalization,
        device: torch.device | None = None,
        rows: Tensor | None = None,
    ) -> None:
        normalization.check_fits(pixels.shape[1])
        transforms.check_fits(*pixels.shape[2:])
        self.pixels, self._rows, self._device = pixels, rows, device or pixels.device
        self._transforms, self._normalization = transforms, normalization

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.pixels.shape[1:])

    @property
    def value_range(self) -> float:
        return 1 / min(self._normalization.std)

    def __len__(self) -> int:
        return len(self.pixels if self._rows is None else self._rows)

    def make_views(self, indices: Tensor, draws: Sequence[Draw | None]) -> list[Tensor]:
        chosen = self._select(indices).to(self._device, non_blocking=True)
        return [
            normalize(chosen, self._normalization)
            if draw is None
            else perturb(chosen, self._transforms[draw.policy], self._normalization, draw.generator)
            for draw in draws
        ]

    def read_pixels(self, indices: Tensor) -> Tensor | None:
        return self._select(indices).cpu()

    def update_digest(self, digest: Digest) -> None:
        digest.update(repr((len(self), *self.shape)).encode())
        for indices in torch.split(torch.arange(len(self)), _CHUNK):
            digest.update(self._select(indices).numpy().data)

    def _select(self, indices: Tensor) -> Tensor:
        if self._rows is not None:
            indices = self._rows[indices.to(self._rows.device)]
        return self.pixels[indices.to(self.pixels.device, non_blocking=True)]

    def to(self, device: torch.device | str) -> Self:
        device = torch.device(device)
        free, pixels, rows = get_free_memory(device), self.pixels, self._rows
        fits = free is None or len(self) * pixels[:1].nbytes <= free * _SHARE_OF_DEVICE
        if fits and device != pixels.device:
            chosen = pixels if rows is None else pixels[rows]
            pixels, rows = chosen.to(device), None
        return type(self)(pixels, self._transforms, self._normalization, device, rows)


def get_free_memory(device: torch.device) -> int | None:
    """Free bytes of a device of its own memory; None for the CPU, whose memory is not another."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None


def hash_tensor(digest: Digest, tensor: Tensor) -> None:
    """Shape and content of a tensor."""
    digest.update(repr(tuple(tensor.shape)).encode())
    digest.update(tensor.contiguous().numpy().data)
