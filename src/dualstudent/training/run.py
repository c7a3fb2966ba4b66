"""A run's folder: all that it made, enough to continue it exactly."""

import json
import platform
import tomllib
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dualstudent.errors import UserError
from dualstudent.recipes.reading import to_toml, validated
from dualstudent.recipes.schema import Recipe

FORMAT = 1


@dataclass(frozen=True)
class Run:
    """Where the files of one run are.

    Attributes:
        folder: of the run.
    """

    folder: Path

    @property
    def recipe(self) -> Path:
        """The recipe with every setting spelled out."""
        return self.folder / "recipe.toml"

    @property
    def about(self) -> Path:
        """Format of the folder and versions of what made it."""
        return self.folder / "run.json"

    @property
    def split(self) -> Path:
        """Which samples had a label, of which data."""
        return self.folder / "split.json"

    @property
    def metrics(self) -> Path:
        """One line of JSON an epoch; equal for equal recipes, so without times."""
        return self.folder / "metrics.jsonl"

    @property
    def checkpoint(self) -> Path:
        """Everything needed to continue."""
        return self.folder / "checkpoint.safetensors"

    @property
    def model(self) -> Path:
        """The trained networks."""
        return self.folder / "model.safetensors"

    @property
    def result(self) -> Path:
        """The figures of the last epoch; there only if the run has finished."""
        return self.folder / "result.json"

    @property
    def curves(self) -> Path:
        """A picture of the run."""
        return self.folder / "curves.png"

    @classmethod
    def create(cls, folder: Path, recipe: Recipe) -> "Run":
        """A new run; never in a folder that already holds something."""
        cls.check_is_free(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot create {folder}: {error.strerror}") from error
        run = cls(folder)
        run.recipe.write_text(to_toml(recipe), "utf-8")
        run.about.write_text(
            json.dumps({"format": FORMAT, "versions": versions()}, indent=1) + "\n"
        )
        return run

    @staticmethod
    def check_is_free(folder: Path) -> None:
        """Refuse a folder that a run would overwrite."""
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UserError(
                f"{folder} already exists; choose another --out, or 'dualstudent resume {folder}'"
            )

    @classmethod
    def open(cls, folder: Path) -> "Run":
        """An existing run of this version's format."""
        run = cls(folder)
        if not run.about.is_file() or not run.recipe.is_file():
            raise UserError(f"{folder} is not a run: it has no run.json and recipe.toml")
        found = json.loads(run.about.read_text()).get("format")
        if found != FORMAT:
            raise UserError(
                f"{folder} has format {found}, this version of dualstudent reads {FORMAT}"
            )
        return run

    def read_recipe(self) -> Recipe:
        """The recipe as it was when the run began."""
        try:
            table = tomllib.loads(self.recipe.read_text("utf-8"))
        except tomllib.TOMLDecodeError as error:
            raise UserError(f"{self.recipe}: not valid TOML: {error}") from error
        return validated(table, str(self.recipe))

    def read_metrics(self) -> list[dict[str, Any]]:
        """What was measured, epoch by epoch."""
        return [json.loads(line) for line in self.metrics.read_text().splitlines()]

    def read_result(self) -> dict[str, Any]:
        """The figures of a finished run."""
        if not self.result.is_file():
            raise UserError(
                f"{self.folder} has not finished; "
                f"continue it with 'dualstudent resume {self.folder}'"
            )
        result: dict[str, Any] = json.loads(self.result.read_text())
        return result


def versions() -> dict[str, str]:
    """Of Python and of everything that can change a number."""
    packages = ("dualstudent", "torch", "lightning-fabric", "numpy", "scikit-learn", "mlxtend")
    return {"python": platform.python_version()} | {name: version(name) for name in packages}
