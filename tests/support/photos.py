"""Photos: smooth colors of any size."""

import numpy as np
import torch
from PIL import Image
from torch import Tensor


def make_photo(width: int = 90, height: int = 60) -> Tensor:
    """(1, 3, height, width) uint8."""
    coarse = np.random.default_rng(0).integers(0, 256, (6, 6, 3), np.uint8)
    image = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)[None]


def to_image(photo: Tensor) -> Image.Image:
    """Of (1, 3 or 1, height, width) uint8."""
    return Image.fromarray(photo[0].permute(1, 2, 0).squeeze(2).numpy())


def to_photo(image: Image.Image) -> Tensor:
    """(1, 3 or 1, height, width) int64, so that differences have a sign."""
    pixels = torch.from_numpy(np.atleast_3d(np.array(image)))
    return pixels.permute(2, 0, 1)[None].long()
