"""A script without ``if __name__ == "__main__"``: worker processes do not run it once more."""

import subprocess
import sys
from pathlib import Path

import pytest

from dualstudent import Run
from dualstudent.recipes.own_images import locate_images, use_own_images
from dualstudent.recipes.reading import to_toml
from tests.support.digit_files import write_digits
from tests.support.imagenet import streamed_recipe, write_imagenet
from tests.support.recipes import small_recipe

SCRIPT = """
from pathlib import Path
from dualstudent import load_recipe, run_grid, train
print("once")
for name in ("own-images", "with-workers"):
    train(load_recipe(f"{name}.toml"), name)
run_grid({"grid": load_recipe("grid.toml")}, Path())
"""
SHORT = ("schedule.epochs=1", "batch.size=64", "batch.labeled=16")


@pytest.mark.slow
def test_it_trains_on_own_images_with_workers_and_a_grid(tmp_path: Path) -> None:
    digits = locate_images(write_digits(tmp_path / "digits"))
    form = ("data.image_size=8", "data.channels=1")
    recipes = {
        "own-images": use_own_images("digits", digits, [*SHORT, *form]),
        "with-workers": streamed_recipe(write_imagenet(tmp_path), 1, SHORT[0]),
        "grid": small_recipe(*SHORT),
    }
    for name, recipe in recipes.items():
        (tmp_path / f"{name}.toml").write_text(to_toml(recipe))
    (tmp_path / "script.py").write_text(SCRIPT)
    finished = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (finished.returncode, finished.stdout) == (0, "once\n"), finished.stderr
    for name in recipes:
        assert Run.open(tmp_path / name).read_result()
