"""Draws weak and strong views of digits and photos for docs/recipes.md.

python benchmarks/draw_views.py
"""

from pathlib import Path

import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_sample_images
from torch import Tensor
from torch.nn import functional as F

from dualstudent import Transform, load_mnist_5k, make_generator

TARGET = Path(__file__).parents[1] / "docs" / "images" / "strong-views.png"
VIEWS = {
    "image": Transform(),
    "weak\ntranslate": Transform(translate=3),
    "affine\n[15, 0.2, 0.2, 0.1]": Transform(affine=(15, 0.2, 0.2, 0.1)),
    "affine\ncutout 0.5": Transform(affine=(15, 0.2, 0.2, 0.1), cutout=0.5),
    "randaugment 2": Transform(randaugment=2),
    "randaugment 2\ncutout 0.5": Transform(randaugment=2, cutout=0.5),
    "randaugment 3\ncutout 0.5": Transform(randaugment=3, cutout=0.5),
}


def list_images() -> list[Tensor]:
    """(channels, H, W) uint8 each."""
    photos = torch.stack([torch.tensor(photo) for photo in load_sample_images().images])
    small = F.interpolate(photos.permute(0, 3, 1, 2), (64, 96), mode="bilinear", antialias=True)
    digits = load_mnist_5k("train").pixels[[900, 1700, 2900]]
    return [*digits, *small[..., 16:80]]


def main() -> None:
    images = list_images()
    figure = Figure(figsize=(1.3 * len(VIEWS), 1.3 * len(images)), layout="constrained")
    axes = figure.subplots(len(images), len(VIEWS))
    for row, image in enumerate(images):
        for column, (name, transform) in enumerate(VIEWS.items()):
            numbers = transform.draw(1, make_generator(row, column))
            view = transform.apply(image[None], numbers)[0].permute(1, 2, 0)
            axes[row, column].imshow(view, cmap="gray", vmin=0, vmax=255)
            axes[row, column].axis("off")
            if row == 0:
                axes[row, column].set_title(name, fontsize=8)
    figure.savefig(TARGET, dpi=70)
    print(TARGET)


if __name__ == "__main__":
    main()
