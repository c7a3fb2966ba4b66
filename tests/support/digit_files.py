"""The bundled digits as people have images: files in folders."""

from pathlib import Path

from PIL import Image

from dualstudent.data.sources.bundled import load_digits_8x8

HOSTILE = 'zero, "<b>0",\n[red]'
CLASSES = (HOSTILE, *"123456789")


def write_digits(
    folder: Path, labeled: int = 6, unlabeled: int = 150, test: int = 60, ending: str = ".png"
) -> Path:
    """``labeled`` images a class; names of files and of one class are hostile."""
    train = load_digits_8x8("train")
    seen = [0] * 10
    rest = 0
    for number, label in enumerate(train.labels.tolist()):
        image = Image.fromarray(train.pixels[number, 0].numpy())
        if seen[label] < labeled:
            seen[label] += 1
            save(image, folder / CLASSES[label] / f"{number}{ending}")
        elif rest < unlabeled:
            rest += 1
            save(image, folder / "unlabeled" / f'it\'s "{number}",\n<i>{ending}')
    tested = load_digits_8x8("test")
    for number, label in enumerate(tested.labels[:test].tolist()):
        image = Image.fromarray(tested.pixels[number, 0].numpy())
        save(image, folder / "test" / CLASSES[label] / f"a,\n{number}{ending}")
    return folder


def save(image: Image.Image, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, quality=95)
