"""How the defaults do on images that they were not chosen on: drawn letters, or drawn shapes.

    python benchmarks/unseen_folder.py letters --minutes 5   # 28 × 28, gray
    python benchmarks/unseen_folder.py shapes --minutes 15   # 32 × 32, in color

Writes a folder with 10 labels of each of 10 classes, 6,000 unlabeled and 2,000 test images, runs
`dualstudent train --data` on it, and shows its error beside those of scikit-learn's classifiers on
the same labels, and how much of the budget it took. How hard the images are was set by logistic
regression on 100 labels alone; no network was trained to choose it.
"""

import argparse
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import LabelSpreading
from sklearn.svm import SVC

from dualstudent import Run
from tables import write_table

RESULTS = Path(__file__).parents[1] / "results" / "unseen"
FONTS = [
    *("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSansMono", "DejaVuSerif"),
    *("DejaVuSerif-Bold", "DejaVuSerif-Italic", "STIXGeneral", "STIXGeneralItalic", "cmr10"),
    *("cmss10", "cmtt10", "cmti10", "cmmi10"),
]
PER_CLASS, UNLABELED, TEST = 10, 6_000, 2_000
CLASSES = 10
FINE = 4  # times as many pixels to draw with


def draw_letter(which: int, draw: np.random.Generator) -> Image.Image:
    """A letter from A to J: any of the fonts, turned, sheared, thin or thick, blurred, noisy."""
    side = 28 * FINE
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    size, center = int(draw.uniform(0.7, 0.9) * side), side / 2 + draw.normal(0, side / 40, 2)
    font = ImageFont.truetype(folder / f"{draw.choice(FONTS)}.ttf", size)
    image = Image.new("L", (side, side))
    ImageDraw.Draw(image).text(
        tuple(center), "ABCDEFGHIJ"[which], 255, font, "mm", stroke_width=int(draw.integers(0, 7))
    )
    shear = draw.uniform(-0.2, 0.2)
    image = image.rotate(draw.normal(0, 7), Image.Resampling.BILINEAR)
    image = image.transform(
        image.size, Image.Transform.AFFINE, (1, shear, -shear * side / 2, 0, 1, 0)
    )
    image = image.filter(ImageFilter.GaussianBlur(draw.uniform(0, 4))).resize((28, 28))
    pixels = draw.uniform(0.5, 1) * np.asarray(image) + draw.uniform(0, 30)
    return add_noise(pixels, 15, draw)


def draw_shape(which: int, draw: np.random.Generator) -> Image.Image:
    """A shape of any color, size and angle before others' lines and patches."""
    side = 32 * FINE
    image = Image.new("RGB", (side, side), tuple(draw.integers(256, size=3).tolist()))
    pen = ImageDraw.Draw(image)
    for _ in range(6):  # what is behind
        (x, y), color = draw.uniform(0, side, 2), tuple(draw.integers(256, size=3).tolist())
        pen.ellipse((x - 20, y - 12, x + 20, y + 12), fill=color)
        pen.line((*draw.uniform(0, side, 4),), color, width=int(draw.integers(2, 8)))
    color = tuple(draw.integers(256, size=3).tolist())
    radius, turn = draw.uniform(0.25, 0.42) * side, draw.uniform(-0.4, 0.4)
    center = side / 2 + draw.normal(0, side / 16, 2)
    outline = [
        (center[0] + radius * r * math.sin(a + turn), center[1] - radius * r * math.cos(a + turn))
        for r, a in list_corners(which)
    ]
    pen.polygon(outline, color)
    return add_noise(np.asarray(image.resize((32, 32), Image.Resampling.BOX)), 10, draw)


def add_noise(pixels: NDArray[Any], sigma: float, draw: np.random.Generator) -> Image.Image:
    noisy = pixels + draw.normal(0, sigma, pixels.shape)
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))


def list_corners(which: int) -> list[tuple[float, float]]:
    """The outline of a shape: distances from the center, and angles in radians."""
    whole = 2 * math.pi
    if which < 5:  # regular: triangle, square, pentagon, hexagon, disk
        corners = (3, 4, 5, 6, 40)[which]
        return [(1.0, whole * i / corners) for i in range(corners)]
    if which < 8:  # stars of 3, 4 and 5 points
        points = which - 2
        return [((1.0, 0.4)[i % 2], whole * i / (2 * points)) for i in range(2 * points)]
    half = [(1.0, math.pi * i / 20) for i in range(21)]
    if which == 8:  # half a disk
        return half
    return half + [(0.55, math.pi * i / 20) for i in range(20, -1, -1)]  # an arch


KINDS: dict[str, Callable[[int, np.random.Generator], Image.Image]] = {
    "letters": draw_letter,
    "shapes": draw_shape,
}


def write_folder(folder: Path, kind: str, seed: int) -> None:
    """A folder per class, one without labels, and test images, drawn by ``seed``."""
    draw = np.random.default_rng([seed, list(KINDS).index(kind)])
    for part, count in (("", PER_CLASS * CLASSES), ("unlabeled", UNLABELED), ("test", TEST)):
        for number in range(count):
            which = number % CLASSES
            name = f"class-{which}"
            place = folder / {"": name, "unlabeled": part, "test": f"test/{name}"}[part]
            place.mkdir(parents=True, exist_ok=True)
            KINDS[kind](which, draw).save(place / f"{draw.integers(1 << 60):015x}.png")


def read_pixels(files: list[Path]) -> NDArray[np.float32]:
    """(files, values), from 0 to 1."""
    return np.stack([np.asarray(Image.open(f), np.float32).ravel() / 255 for f in files])


def measure_baselines(folder: Path) -> dict[str, float]:
    """Name → test error in % of each of scikit-learn's classifiers."""
    labeled, test = (sorted(folder.glob(f"{at}class-*/*.png")) for at in ("", "test/"))
    unlabeled = sorted(folder.glob("unlabeled/*.png"))
    known = [int(file.parent.name[-1]) for file in labeled]
    labels = np.array(known + [-1] * len(unlabeled))
    truth = np.array([int(file.parent.name[-1]) for file in test])
    images, asked = read_pixels([*labeled, *unlabeled]), read_pixels(test)
    components = PCA(50, random_state=0).fit(images)
    reduced, few = components.transform(images), len(labeled)
    spreading = LabelSpreading("knn", n_neighbors=10, max_iter=100).fit(reduced, labels)
    found = {
        "logistic regression": LogisticRegression(max_iter=1000)
        .fit(images[:few], labels[:few])
        .predict(asked),
        "SVM": SVC(C=10).fit(reduced[:few], labels[:few]).predict(components.transform(asked)),
        "label spreading": spreading.predict(components.transform(asked)),
    }
    return {name: 100 * float((classes != truth).mean()) for name, classes in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--minutes", type=int, default=5, help="the budget")
    parser.add_argument("--seed", type=int, default=0, help="of the images and of the run")
    parser.add_argument("--out", type=Path, help="default: runs/unseen-KIND-SEED-MINUTES")
    asked = parser.parse_args()
    name, budget = f"{asked.kind}-{asked.seed}-{asked.minutes}", f"{asked.minutes}min"
    out = asked.out or Path("runs") / f"unseen-{name}"
    if out.exists():
        parser.error(f"{out} exists; choose another --out")
    write_folder(out / "images", asked.kind, asked.seed)
    errors = measure_baselines(out / "images")
    print(*(f"{who}: {error:.2f} %" for who, error in errors.items()), sep="\n", flush=True)
    command = ["dualstudent", "train", "--data", str(out / "images"), "--budget", budget]
    command += ["--set", f"seed={asked.seed}", "--out", str(out / "run")]
    subprocess.run([sys.executable, "-m", *command], check=True)
    run = Run.open(out / "run")
    runs = {"our network, labels alone": run.labels_only, "train --data": run}
    results = {who: each.read_result() for who, each in runs.items()}
    rows = [[who, f"{error:.2f}", ""] for who, error in errors.items()]
    rows += [[who, f"{r['error']:.2f}", f"{r['seconds']:.0f}"] for who, r in results.items()]
    share = sum(result["seconds"] for result in results.values()) / (60 * asked.minutes)
    RESULTS.mkdir(parents=True, exist_ok=True)
    title = f"{asked.kind}, seed {asked.seed}"
    heading = f"seconds, together {share:.0%} of {budget}"
    write_table(RESULTS / f"{name}.md", [title, "test error in %", heading], rows)


if __name__ == "__main__":
    main()
