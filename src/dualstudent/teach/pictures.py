"""Pictures for the page, decoded and encoded anew: no byte of a file gets into a browser."""

from functools import lru_cache
from io import BytesIO
from pathlib import Path

from PIL import Image

from dualstudent.data.images.decoding import decode

SIDES = (320, 1600)  # pixels: in a grid, and alone
_KEPT = 64  # pictures in memory, so that going back is fast
_LOSSLESS = 128  # pixels a side of images that are shown enlarged, pixel by pixel


def draw_picture(path: Path, side: int) -> tuple[bytes, str]:
    """Draw an image that fits into a square of ``side`` pixels; returns content and media type.

    Raises:
        UnreadableImage: if the file cannot be read.
    """
    status = path.stat() if path.exists() else None
    return _draw(path, side, status.st_mtime_ns if status else 0)


@lru_cache(_KEPT)
def _draw(path: Path, side: int, changed: int) -> tuple[bytes, str]:
    pixels = decode(path)
    image = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
    image.thumbnail((side, side))
    drawn = BytesIO()
    if max(image.size) <= _LOSSLESS:
        image.save(drawn, "PNG")
        return drawn.getvalue(), "image/png"
    image.save(drawn, "JPEG", quality=88)
    return drawn.getvalue(), "image/jpeg"
