"""What an installed dualstudent must do without its clone; run by ``make dist``, not by pytest.

It takes the clone, where the installation must not come from, and compares the files of the
package with those there.
"""

import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import numpy as np
from PIL import Image

import dualstudent
from dualstudent.experiments.reading import list_experiments, load_experiment
from dualstudent.recipes.files import list_recipe_names

SHORT = (
    *("data.source=digits-8x8", "data.image_size=8", "transforms.weak.translate=1"),
    *("batch.size=64", "batch.labeled=16", "schedule.epochs=1", "schedule.rampup_epochs=1"),
)


def main(clone: Path) -> None:
    assert not Path(dualstudent.__file__).is_relative_to(clone), dualstudent.__file__
    project = tomllib.loads((clone / "pyproject.toml").read_text("utf-8"))["project"]
    assert metadata.version("dualstudent") == project["version"]
    installed = Path(dualstudent.__file__).parent
    for file in (clone / "src" / "dualstudent").rglob("*.*"):  # templates, recipes, stubs, pages
        place = file.relative_to(clone / "src" / "dualstudent")
        assert "__pycache__" in place.parts or (installed / place).exists(), place
    for name in dir(dualstudent):
        assert getattr(dualstudent, name) is not None
    for name in list_recipe_names():
        dualstudent.load_recipe(name)
    for name in list_experiments():
        load_experiment(name)
    run = dualstudent.train(dualstudent.load_recipe("digits", SHORT), "runs/short")
    assert run.page.is_file()
    dualstudent.compare(["supervised"], "digits", seeds=1, changes=SHORT, folder="compared")
    assert Path("compared", "index.html").is_file()
    learn_from_vectors()
    predict_files(run.folder)


def learn_from_vectors() -> None:
    X = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    X[::2] += 3
    y = np.where(np.arange(60) < 10, np.arange(60) % 2, -1)
    found = dualstudent.DualStudentClassifier(epochs=5, random_state=0).fit(X, y).predict(X)
    assert (found == np.arange(60) % 2).mean() > 0.8  # all of them here, chance is half


def predict_files(run: Path) -> None:
    Image.fromarray(np.zeros((28, 28), np.uint8)).save("digit.png")
    words = ["predict", str(run), "digit.png"]
    shown = subprocess.run(["dualstudent", *words], check=True, capture_output=True, text=True)
    assert "1 prediction" in shown.stdout, shown.stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]))
