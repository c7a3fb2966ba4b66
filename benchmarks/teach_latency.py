"""How long one waits for `dualstudent teach`, in Chromium (Debian: apt-get install chromium).

    python benchmarks/teach_latency.py

5,000 bundled digits in a folder. Measured are the seconds from the end of the listing (the line
with the address) to the first image that is drawn, and the milliseconds from a key to the next
image, in the page itself, while the model learns in the background. Goals: 2 s and 100 ms.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from dualstudent import load_mnist_5k

KEYS = 60
OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
MEASURE = """() => new Promise((done) => {
  const begun = performance.now(), before = document.querySelector(".large")?.src;
  const look = () => {
    const image = document.querySelector(".large");
    if (image && image.src !== before && image.complete) done(performance.now() - begun);
    else requestAnimationFrame(look);
  };
  const key = { key: "1", bubbles: true };
  document.body.dispatchEvent(new KeyboardEvent("keydown", key));
  look();
})"""


def write_digits(folder: Path) -> None:
    folder.mkdir()
    for part in ("train", "test"):
        digits = load_mnist_5k(part)
        for number, image in enumerate(digits.pixels.numpy()):
            Image.fromarray(image[0]).save(folder / f"{part}-{number}.png")


def measure(page: Page, address: str, printed: float) -> tuple[float, list[float]]:
    page.goto(address)
    page.locator("img.large").wait_for()
    first = time.monotonic() - printed
    page.locator("#class-name").fill("zero")
    page.keyboard.press("Enter")
    page.locator("#classes .class").wait_for()
    return first, [page.evaluate(MEASURE) for _ in range(KEYS)]


def main() -> None:
    program = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))))
    with TemporaryDirectory() as place, sync_playwright() as playwright:
        folder = Path(place) / "digits"
        write_digits(folder)
        browser = playwright.chromium.launch(executable_path=program, args=OPTIONS)
        page = browser.new_context().new_page()
        environment = os.environ | {"DUALSTUDENT_CACHE": f"{place}/cache"}
        words = ["teach", str(folder), "--port", "0", "--no-browser"]
        command = [sys.executable, "-m", "dualstudent", *words]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, env=environment, text=True
        ) as process:
            assert process.stdout is not None
            found = (re.match(r"open (http\S+)$", line) for line in process.stdout)
            address = next(match[1] for match in found if match)
            first, waits = measure(page, address, time.monotonic())
            process.terminate()
        browser.close()
    longest = sorted(waits)[int(0.95 * len(waits))]
    print(f"first image {first:.2f} s; key {median(waits):.0f} ms, 95 % within {longest:.0f} ms")


if __name__ == "__main__":
    main()
