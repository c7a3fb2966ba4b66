"""Pictures of the teaching page in use, by Chromium: docs/images/teach-page.png, teach-page.webp.

    python benchmarks/draw_teach.py $DUALSTUDENT_DATA/clothing/train

Some photos of each class are put into one folder without labels. A script that knows the classes
labels what the page asks for, by keyboard, and takes a picture after every few.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from playwright.sync_api import Page, sync_playwright

IMAGES = Path(__file__).parents[1] / "docs" / "images"
OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
CLASSES = ("dress", "hat", "pants", "shirt", "shoes", "t-shirt")
EACH, LABELS, EVERY = 90, 120, 4
SIZE, SMALL = (1280, 800), (800, 500)
MOST = 800_000  # bytes of the animation


def gather(photos: Path, folder: Path) -> dict[str, str]:
    """Copy photos into one folder; returns the class of each."""
    folder.mkdir()
    truth = {}
    for name in CLASSES:
        for path in sorted((photos / name).iterdir())[:EACH]:
            shutil.copy(path, folder / path.name)
            truth[path.name] = name
    return truth


def label(page: Page, truth: dict[str, str]) -> list[Image.Image]:
    """Label what is asked for; returns what was seen."""
    frames, known = list[Image.Image](), list[str]()
    for number in range(LABELS):
        page.locator("img.large").wait_for()
        shown = page.locator(".caption .file").text_content() or ""
        name = truth[shown]
        if name in known:
            page.keyboard.press("1234567890"[known.index(name)])
        else:
            page.keyboard.press("+")
            page.keyboard.type(name)
            page.keyboard.press("Enter")
            known.append(name)
        page.locator(".caption .file").filter(has_not_text=shown).wait_for()
        page.locator("#labels").get_by_text(f"{number + 1}", exact=True).wait_for()
        if number % EVERY == EVERY - 1:
            if number > 2 * EVERY:  # as slowly as a person
                page.locator(".news .learning").wait_for(state="detached", timeout=120_000)
            frames.append(Image.open(BytesIO(page.screenshot())).convert("RGB"))
    return frames


def draw(photos: Path, place: Path) -> list[Image.Image]:
    program = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))))
    truth = gather(photos, place / "photos")
    words = ["teach", str(place / "photos"), "--port", "0", "--no-browser"]
    command = [sys.executable, "-m", "dualstudent", *words]
    with (
        sync_playwright() as playwright,
        subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ, text=True) as process,
    ):
        assert process.stdout is not None
        found = (re.match(r"open (http\S+)$", line) for line in process.stdout)
        address = next(match[1] for match in found if match)
        browser = playwright.chromium.launch(executable_path=program, args=OPTIONS)
        page = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]})
        page.set_default_timeout(120_000)
        page.goto(address)
        page.locator("#features").wait_for(state="hidden")
        page.keyboard.press(".")
        frames = label(page, truth)
        browser.close()
        process.terminate()
    return frames


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("photos", type=Path, help="folder with a folder per class")
    with TemporaryDirectory() as place:
        frames = draw(parser.parse_args().photos, Path(place))
    frames[-1].save(IMAGES / "teach-page.png", optimize=True)
    small = [frame.resize(SMALL, Image.Resampling.LANCZOS) for frame in frames]
    target = IMAGES / "teach-page.webp"
    for quality in range(70, 10, -10):
        small[0].save(
            target, save_all=True, append_images=small[1:], duration=450, loop=0, quality=quality
        )
        if target.stat().st_size <= MOST:
            break
    print(f"{len(frames)} pictures, {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
