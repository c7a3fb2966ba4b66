"""How many views are made per second, and how many by kornia, if it is installed.

    make bench        # or: python benchmarks/views.py [--rounds 60]

Bytes in, normalized floats out; the figure is the median of the rounds. kornia's RandAugment draws
its operations for the whole batch at once and takes color images only; here they are drawn for each
image.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor

from dualstudent import Draw, ImageSamples, Normalization, Transform, Transforms, make_generator

try:
    import kornia.augmentation as kornia
    from kornia.augmentation.auto import RandAugment
except ImportError:
    kornia = None

BATCH = 256
AFFINE = (15.0, 0.1, 0.1, 0.1)


def make_ours(pixels: Tensor, transform: Transform) -> Callable[[], object]:
    samples = ImageSamples(pixels, Transforms(strong=transform), Normalization())
    rows, draws = torch.arange(len(pixels)), [Draw("strong", make_generator(0))]
    return lambda: samples.make_views(rows, draws)


def make_kornia(pixels: Tensor, *transforms: object) -> Callable[[], object]:
    sequence = kornia.AugmentationSequential(*transforms, kornia.Normalize(0.5, 0.5))
    return lambda: sequence(pixels.float() / 255)


def list_rows(pixels: Tensor, shift: int) -> dict[str, list[Callable[[], object]]]:
    """Kind of view → what makes a batch of them here and, if installed, with kornia."""
    rows = {
        "weak: shift and flip": [make_ours(pixels, Transform(translate=shift, flip=True))],
        "affine and cutout": [make_ours(pixels, Transform(affine=AFFINE, cutout=0.5))],
        "RandAugment(2) and cutout": [make_ours(pixels, Transform(randaugment=2, cutout=0.5))],
    }
    if kornia is None:
        return rows
    size, area = tuple(pixels.shape[2:]), (0.01, 0.25)
    crop = kornia.RandomCrop(size, padding=shift, padding_mode="reflect")
    affine = kornia.RandomAffine(15, (0.1, 0.1), (0.9, 1.1), 6, padding_mode="border", p=1.0)
    box = kornia.RandomErasing(area, (1.0, 1.0), 0.5, p=1.0)
    weak, strong, random = rows.values()
    weak.append(make_kornia(pixels, crop, kornia.RandomHorizontalFlip()))
    strong.append(make_kornia(pixels, affine, box))
    if pixels.shape[1] == 3:  # others it refuses
        random.append(make_kornia(pixels, RandAugment(n=2, m=10), box))
    return rows


def measure_rate(make: Callable[[], object]) -> float:
    started = time.perf_counter()
    make()
    return BATCH / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    torch.manual_seed(0)
    print(f"views per second, {torch.get_num_threads()} thread(s), batch {BATCH}", end="")
    print("; kornia is not installed" if kornia is None else "; here and with kornia")
    for channels, side, shift in ((1, 28, 2), (3, 32, 4)):
        pixels = torch.randint(256, (BATCH, channels, side, side), dtype=torch.uint8)
        for name, makers in list_rows(pixels, shift).items():
            rates = [median(measure_rate(make) for _ in range(rounds)) for make in makers]
            figures = "".join(f"{rate:12,.0f}" for rate in rates)
            print(f"{side}×{side}×{channels}  {name:<27}{figures}")


if __name__ == "__main__":
    main()
