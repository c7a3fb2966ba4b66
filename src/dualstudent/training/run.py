"""A run's folder: all that it made, enough to continue it exactly."""

import fcntl
import json
import platform
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from dualstudent.data.prepared import PreparedData
from dualstudent.data.splits import write_manifest
from dualstudent.errors import UserError
from dualstudent.recipes.reading import RenamedKeyWarning, load_recipe, to_toml
from dualstudent.recipes.schema import Recipe

FORMAT = 2
_RESULT = {"headline", "networks", "seconds", "versions"}


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
        """Which samples of the data set had a label; not there for data handed over."""
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
    def log(self) -> Path:
        """The images that could not be read, a line each; there only if there were any."""
        return self.folder / "log.txt"

    @property
    def curves(self) -> Path:
        """A picture of the run."""
        return self.folder / "curves.png"

    @property
    def page(self) -> Path:
        """All of it to look at, in a browser."""
        return self.folder / "report.html"

    @classmethod
    def create(cls, folder: Path, recipe: Recipe, data: PreparedData) -> "Run":
        """A new run, there as a whole or not at all; never where there is something already."""
        cls.check_free(folder)
        partial = cls(folder.with_name(folder.name + ".partial"))
        partial.folder.mkdir(parents=True, exist_ok=True)
        partial.recipe.write_text(to_toml(recipe), "utf-8")
        about = {"format": FORMAT, "data": data.fingerprint(), "versions": list_versions()}
        partial.about.write_text(json.dumps(about, indent=1) + "\n")
        if data.source is not None:
            write_manifest(partial.split, data.source, data.labeled, recipe.seed)
        partial.folder.rename(folder)
        return cls(folder)

    @classmethod
    def check_free(cls, folder: Path) -> None:
        """Refuse a folder that a run would overwrite, or that cannot be made."""
        for above in folder.parents:
            if above.is_file():
                raise UserError(f"{above} is a file, no folder; choose another --out")
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            hint = f", or 'dualstudent resume {folder}'" if cls(folder).about.is_file() else ""
            raise UserError(f"{folder} already exists; choose another --out{hint}")

    @classmethod
    def open(cls, folder: Path | str) -> "Run":
        """An existing run of this version's format."""
        folder = Path(folder)
        run = cls(folder)
        if not folder.exists():
            raise UserError(f"{folder} does not exist")
        if not run.about.is_file() or not run.recipe.is_file():
            raise UserError(f"{folder} is not a run: it has no run.json and recipe.toml")
        found = _read_object(run.about).get("format")
        if found != FORMAT:
            raise UserError(
                f"{folder} has format {found}, this version of dualstudent reads {FORMAT}"
            )
        return run

    @property
    def evaluated_part(self) -> Literal["test", "validation", "source validation"]:
        """What it is evaluated on, if there is any."""
        return self.read_recipe().data.evaluated_part

    def read_fingerprint(self) -> object:
        """Of the data that the run began with."""
        return _read_object(self.about).get("data")

    def check_same_data(self, data: PreparedData) -> None:
        """Refuse other images or labels than the run began with."""
        if self.read_fingerprint() != data.fingerprint():
            raise UserError(
                f"{self.folder}: the images or labels found now are not those the run began with; "
                "bring them back, or train again into another folder"
            )

    def check_recipe(self, recipe: Recipe) -> None:
        """Refuse a run of another recipe than this one."""
        if not self.read_recipe().defines_same_run_as(recipe):
            raise UserError(f"{self.folder} holds a run of another recipe; choose another --out")

    def read_recipe(self) -> Recipe:
        """The recipe as it was when the run began."""
        with warnings.catch_warnings(action="ignore", category=RenamedKeyWarning):
            return load_recipe(self.recipe)  # nobody edits it, so nobody needs to be told

    def read_metrics(self) -> list[dict[str, Any]]:
        """What was measured, epoch by epoch."""
        try:
            return [json.loads(line) for line in self.metrics.read_text().splitlines()]
        except (OSError, ValueError) as error:
            raise UserError(f"{self.metrics}: cannot be read ({error})") from error

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from training the run at the same time.

        Raises:
            UserError: if one does.
        """
        with self.about.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # ends with the process
            except BlockingIOError as error:
                raise UserError(
                    f"{self.folder} is being trained by another process; wait for it, or stop it"
                ) from error
            yield

    def read_result(self) -> dict[str, Any]:
        """The figures of a finished run."""
        if not self.result.is_file():
            with self.lock():  # says so if it is still on its way
                raise UserError(
                    f"{self.folder} has not finished; "
                    f"continue it with 'dualstudent resume {self.folder}'"
                )
        result = _read_object(self.result)
        if not result.keys() >= _RESULT:
            raise UserError(f"{self.result}: is not a result of this version of dualstudent")
        return result


def _read_object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error})") from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: cannot be read (it holds no JSON object)")
    return content


def list_versions() -> dict[str, str]:
    """Of Python and of everything that can change a number."""
    packages = (
        "dualstudent",
        "torch",
        "lightning-fabric",
        "numpy",
        "scikit-learn",
        "mlxtend",
        "pillow",
    )
    return {"python": platform.python_version()} | {name: version(name) for name in packages}
