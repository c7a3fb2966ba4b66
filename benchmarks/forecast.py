"""How good the forecast of the duration of a training is.

    python benchmarks/forecast.py [--epochs 20]     # about 3 minutes

Forecasts the training of the recipe digits and of a small folder of images, takes each to its
end, and prints both durations and their ratio. Run it while nothing else runs.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from PIL import Image

from dualstudent import (
    DataSettings,
    Recipe,
    estimate_seconds,
    load_mnist_5k,
    load_recipe,
    make_generator,
    prepare,
    train,
)

LABELED, UNLABELED, TEST = 50, 1500, 500


def write_images(folder: Path) -> None:
    """Write digits as files: a folder per class, one without labels, and test images."""
    seen, tested = load_mnist_5k("train"), load_mnist_5k("test")
    chosen = torch.randperm(len(seen), generator=make_generator("train"))[: LABELED + UNLABELED]
    asked = torch.randperm(len(tested), generator=make_generator("test"))[:TEST]
    places = [str(label) for label in seen.labels[chosen[:LABELED]].tolist()]
    places += ["unlabeled"] * UNLABELED
    places += [f"test/{label}" for label in tested.labels[asked].tolist()]
    images = torch.cat([seen.pixels[chosen, 0], tested.pixels[asked, 0]])
    for number, (place, pixels) in enumerate(zip(places, images, strict=True)):
        (folder / place).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.numpy()).save(folder / place / f"{number}.png")


def compare(recipe: Recipe, out: Path) -> tuple[float, float]:
    """Return the forecast and the actual duration in seconds, without preparing the data."""
    data = prepare(recipe.data, recipe.seed, recipe.transforms, recipe.normalization)
    forecast = estimate_seconds(recipe, data)
    return forecast, train(recipe, out, data=data).read_result()["seconds"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    change = f"schedule.epochs={parser.parse_args().epochs}"
    print("training        forecast [s]  actual [s]  ratio")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_images(folder / "images")
        digits = load_recipe("digits", [change])
        own = DataSettings(path=folder / "images", image_size=28, channels=1)
        recipes = {"digits": digits, "own images": digits.model_copy(update={"data": own})}
        for number, (title, recipe) in enumerate(recipes.items()):
            forecast, actual = compare(recipe, folder / str(number))
            print(f"{title:<14}  {forecast:>12.1f}  {actual:>10.1f}  {forecast / actual:>5.2f}")


if __name__ == "__main__":
    main()
