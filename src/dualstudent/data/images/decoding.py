"""Decoding of image files to upright pixels in bytes."""

import ctypes
import logging
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import PIL
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError, _imaging

from dualstudent.data.transforms import resize as transforms
from dualstudent.errors import UserError

VERSION = 2  # changes whenever this file or transforms/resize.py may give other pixels than before
DECODER = f"{VERSION} with Pillow {PIL.__version__}"

Channels = Literal[1, 3]
LARGEST_SIDE = 2048  # pixels a side that images may be resized to

# No others: some of Pillow's readers start other programs or unpack without limits.
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF")
_MOST_BYTES = 1 << 30  # larger than any image within the limit of pixels
_MOST_PIXELS = 89_478_485  # Pillow's limit for decompression bombs
_NUMBERS = ("I", "F")  # first letters of modes with more than one byte per value
_FULL_SCALES = {"I;16": (65535,), "I": (65535,), "F": (1, 255, 65535)}

# For broken files, libtiff prints lines of its own to stderr; Pillow raises an error as well.
with suppress(AttributeError, OSError):  # another build of Pillow may hide it
    ctypes.CDLL(_imaging.__file__).TIFFSetErrorHandler(None)
logging.getLogger("PIL").addHandler(logging.NullHandler())  # else Python prints what it logs


class UnreadableImage(UserError):
    """A file cannot be read as an image.

    Attributes:
        path: path of the file; empty if only its content was given.
        reason: why it cannot be read.
    """

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = Path(path), reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def decode(file: Path | bytes, channels: Channels | None = None) -> NDArray[np.uint8]:
    """Decode an image file to upright pixels in 0 … 255.

    Reads the first frame of JPEG, PNG, WebP, BMP, TIFF and GIF files: gray, palette, RGB, CMYK.
    EXIF rotation is applied, transparency is blended with white, color profiles are ignored.
    16-bit values are divided by 257. Floats and 32-bit integers are divided by the smallest usual
    full scale that holds them (65535; for floats also 1 or 255); if none does, their range is
    mapped to 0 … 255.

    Args:
        file: path or content.
        channels: 3 for RGB, 1 for gray; default: gray or RGB, as in the file.

    Returns:
        (channels, H, W).

    Raises:
        UnreadableImage: if the file cannot be read or decoded.

    Example:
        >>> from io import BytesIO
        >>> from PIL import Image
        >>> file = BytesIO()
        >>> Image.new("RGB", (2, 1), "red").save(file, "PNG")
        >>> decode(file.getvalue()).tolist()
        [[[255, 255]], [[0, 0]], [[0, 0]]]
    """
    if isinstance(file, Path):
        content, path = read_image_file(file), file
    else:
        content, path = file, Path()
    if not content:
        raise UnreadableImage(path, "the file is empty")
    with _raise_unreadable(path), Image.open(BytesIO(content), formats=_FORMATS) as image:
        return _to_pixels(image, channels)


def convert_image(image: Image.Image, channels: Channels | None = None) -> NDArray[np.uint8]:
    """Convert a Pillow image to pixels, like :func:`decode`.

    Example:
        >>> convert_image(Image.new("RGBA", (1, 1), (255, 0, 0, 0))).tolist()
        [[[255]], [[255]], [[255]]]
    """
    with _raise_unreadable(Path()):
        return _to_pixels(image, channels)


@contextmanager
def _raise_unreadable(path: Path) -> Iterator[None]:
    try:
        yield
    except UnidentifiedImageError as error:
        reason = "not an image that can be read: JPEG, PNG, WebP, BMP, TIFF and GIF can"
        raise UnreadableImage(path, reason) from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        reason = f"more than {_MOST_PIXELS:,} pixels ({error}); make the image smaller"
        raise UnreadableImage(path, reason) from error
    except MemoryError:  # not the fault of the file
        raise
    except Exception as error:  # decoders raise many kinds of errors on broken data
        raise UnreadableImage(path, f"broken or cut off ({error or error!r})") from error


def _to_pixels(image: Image.Image, channels: Channels | None) -> NDArray[np.uint8]:
    if image.width * image.height > _MOST_PIXELS:
        raise Image.DecompressionBombError(f"{image.width} × {image.height}")
    image.load()
    pixels = np.asarray(_to_bytes(_turn_upright(image), channels))
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


class Header(NamedTuple):
    """Size of an image, and whether its format has no color."""

    height: int
    width: int
    is_gray: bool


def read_header(file: Path | bytes) -> Header:
    """Read size and color mode of an image file without decoding it.

    Raises:
        UnreadableImage: if that is not possible.

    Example:
        >>> content = BytesIO()
        >>> Image.new("L", (2, 1)).save(content, "PNG")
        >>> read_header(content.getvalue())
        Header(height=1, width=2, is_gray=True)
    """
    path = file if isinstance(file, Path) else Path()
    if isinstance(file, Path):
        _check_is_regular(file)
    source = file if isinstance(file, Path) else BytesIO(file)
    with _raise_unreadable(path), Image.open(source, formats=_FORMATS) as image:
        return Header(image.height, image.width, _is_gray(image.mode))


def read_image_file(path: Path) -> bytes:
    """Read a regular file of at most 1 GiB.

    Raises:
        UnreadableImage: if that is not possible.
    """
    _check_is_regular(path)
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnreadableImage(path, error.strerror or str(error)) from error


def _check_is_regular(path: Path) -> None:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # reading a pipe could block
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise UnreadableImage(path, f"is {kind}")
        if status.st_size > _MOST_BYTES:
            raise UnreadableImage(path, f"too large for an image: {status.st_size:,} bytes")
    except OSError as error:
        raise UnreadableImage(path, error.strerror or str(error)) from error


def resize(pixels: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Resize the center square to ``size`` × ``size``, see :mod:`~.data.transforms.resize`.

    Args:
        pixels: (channels, H, W).
        size: pixels a side.

    Returns:
        (channels, size, size), contiguous.
    """
    image = torch.from_numpy(np.require(pixels, requirements="W"))  # torch wants writable arrays
    return transforms.resize(image[None], size)[0].contiguous().numpy()


def _turn_upright(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # the pixels are fine even if the metadata are broken
        return image


def _is_gray(mode: str) -> bool:
    return mode in ("1", "L", "LA") or mode.startswith(_NUMBERS)


def _to_bytes(image: Image.Image, channels: Channels | None) -> Image.Image:
    """Convert to mode L or RGB."""
    gray = _is_gray(image.mode)
    if image.mode.startswith(_NUMBERS):
        image = Image.fromarray(_scale(np.asarray(image), image.mode))
    elif image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    return image.convert("L" if (channels or (1 if gray else 3)) == 1 else "RGB")


def _scale(numbers: NDArray[np.generic], mode: str) -> NDArray[np.uint8]:
    values: NDArray[np.float32] = numbers.astype(np.float32)
    low, high = float(values.min()), float(values.max())
    if not np.isfinite([low, high]).all():
        raise ValueError("holds values that are not finite numbers")
    full: float
    for full in _FULL_SCALES[mode[:4]]:
        if low >= 0 and high <= full:
            break
    else:
        values, full = values - low, max(high - low, 1e-30)
    return (values * (255 / full)).round().astype(np.uint8)
