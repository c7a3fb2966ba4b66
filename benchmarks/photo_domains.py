"""Photos and drawings of clothes as two domains: which method adapts, on features of a trunk?

    python benchmarks/photo_domains.py domains    # writes the folder

The source are the photos of every second file of `$DUALSTUDENT_DATA/clothing/train`, with labels.
The target are the others as drawings: their edges, dark on white, without color. No photo is in
both. Labels of the target are those of its test part, `clothing/test`, also drawn. RESULTS.md has
the commands that compare methods on this folder.
"""

import argparse
import os
from pathlib import Path

from PIL import Image, ImageFilter, ImageOps

SIDE = 224  # pixels, of the short side


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    photos = Path(os.environ["DUALSTUDENT_DATA"]) / "clothing"
    for number, file in enumerate(sorted(photos.glob("train/*/*"))):
        if number % 2:
            write(draw(file), folder / "target" / "unlabeled" / f"{number}.png")
        else:
            write(read(file), folder / "source" / file.parent.name / f"{number}.png")
    for number, file in enumerate(sorted(photos.glob("test/*/*"))):
        write(draw(file), folder / "target" / "test" / file.parent.name / f"{number}.png")


def read(file: Path) -> Image.Image:
    photo = ImageOps.exif_transpose(Image.open(file)).convert("RGB")
    scale = SIDE / min(photo.size)
    return photo.resize([round(side * scale) for side in photo.size], Image.Resampling.BICUBIC)


def draw(file: Path) -> Image.Image:
    """Edges as dark lines: smoothed first, so that cloth and noise are no lines."""
    gray = read(file).convert("L").filter(ImageFilter.GaussianBlur(2))
    edges = gray.filter(ImageFilter.FIND_EDGES)
    inner = edges.crop((2, 2, edges.width - 2, edges.height - 2))  # the frame is no edge
    return ImageOps.invert(ImageOps.autocontrast(inner, cutoff=1))


def write(image: Image.Image, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    image.save(file)


if __name__ == "__main__":
    main()
