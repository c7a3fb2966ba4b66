"""The folder of a run and its files."""

import fcntl
import platform
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from dualstudent.atomic import atomic_write, create_folder
from dualstudent.data.prepared import PreparedData
from dualstudent.data.splits import read_manifest, write_manifest
from dualstudent.discovery import check_imports
from dualstudent.errors import UserError
from dualstudent.recipes.reading import RenamedKeyWarning, read_recipe_table, to_toml, validate
from dualstudent.recipes.schema import Recipe
from dualstudent.sealed import hash_file, parse_object, read_sealed, read_text, write_sealed
from dualstudent.settings import Table
from dualstudent.training.records import Epoch, Result, check_form

FORMAT = 4
_EARLIER_FORMATS = (2, 3)  # can be read, too, but have no digests
# Methods whose losses have changed since format 2: such a run is none of this version.
_CHANGED_METHODS = {"deep-co-training", "vat"}
_METRICS_DIGEST = "metrics_sha256"
_MOST_METRICS = 2**30  # bytes, which are read at once


@dataclass(frozen=True)
class Run:
    """The files of one run.

    Attributes:
        folder: folder of the run.
        imports: import paths that its recipe may name, as the user trusts their code. Nothing else
            is imported because a folder, which may be a stranger's, says so.
    """

    folder: Path
    imports: frozenset[str] = frozenset()

    @property
    def recipe(self) -> Path:
        """The recipe with all settings."""
        return self.folder / "recipe.toml"

    @property
    def about(self) -> Path:
        """Format and random id of the run, digests of its files and data, and versions."""
        return self.folder / "run.json"

    @property
    def split(self) -> Path:
        """The labeled samples of the data set; missing for data from Python."""
        return self.folder / "split.json"

    @property
    def metrics(self) -> Path:
        """One line of JSON per epoch, without times, so that equal recipes give equal files."""
        return self.folder / "metrics.jsonl"

    @property
    def checkpoint(self) -> Path:
        """The state of the training, to continue from."""
        return self.folder / "checkpoint.safetensors"

    @property
    def earlier_checkpoint(self) -> Path:
        """The checkpoint before the last, in case that one is damaged."""
        return self.folder / "checkpoint-before.safetensors"

    @property
    def model(self) -> Path:
        """The trained networks."""
        return self.folder / "model.safetensors"

    @property
    def features_before(self) -> Path:
        """Features of some samples when the last stage began; only of two domains and stages."""
        return self.folder / "features-before.safetensors"

    @property
    def result(self) -> Path:
        """The figures of the last epoch; exists only if the run has finished."""
        return self.folder / "result.json"

    @property
    def hidden_label_answers(self) -> Path:
        """What an interrupted cross-validation has found; exists only until it is done."""
        return self.folder / "cross-validation.json"

    @property
    def log(self) -> Path:
        """The images that could not be read, one per line; exists only if there are any."""
        return self.folder / "log.txt"

    @property
    def curves(self) -> Path:
        """A picture of the learning curves."""
        return self.folder / "curves.png"

    @property
    def page(self) -> Path:
        """The report as an HTML page."""
        return self.folder / "report.html"

    @property
    def labels_only(self) -> "Run":
        """A run on the labels alone to compare with, in the same folder; most runs have none."""
        return Run(self.folder / "labels-only", self.imports)

    @property
    def used(self) -> "Run":
        """The run whose model is used: this one, or ``labels_only`` if that was chosen."""
        gain = self.read_result().get("gain")
        return self.labels_only if gain and gain["labels_only_used"] else self

    @property
    def refit(self) -> "Run":
        """The used model trained once more on all labels, in the same folder; few runs have it."""
        return Run(self.folder / "refit", self.imports)

    @property
    def deployed(self) -> "Run":
        """The run whose model predicts and is exported: ``refit`` if there is one, or ``used``."""
        used = self.used  # raises if the run has not finished
        return self.refit if self.wants_refit and self.refit.result.is_file() else used

    @property
    def wants_refit(self) -> bool:
        """Whether there is, or is to be, a run ``refit``; not if its training failed."""
        failed = self.result.is_file() and "refit" in self.read_result()
        return bool(self.read_about().get("refit")) and not failed

    @classmethod
    def create(
        cls,
        folder: Path,
        recipe: Recipe,
        data: PreparedData,
        opponent: Recipe | None = None,
        refit: bool = False,
    ) -> "Run":
        """Create the folder of a new run, atomically.

        Args:
            folder: must not exist or be empty.
            recipe: of the run.
            data: of the run.
            opponent: of the run ``labels_only`` on the same data, if there is to be one.
            refit: whether there is to be a run ``refit``.

        Raises:
            UserError: if the folder exists and is not empty.
        """
        cls.check_free(folder)
        with create_folder(folder) as partial:
            started = cls(partial)
            started._write_start(recipe, data, refit)
            if opponent is not None:
                started.labels_only._write_start(opponent, data)
        return cls(folder, recipe.imports)

    def _write_start(self, recipe: Recipe, data: PreparedData, refit: bool = False) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.recipe.write_text(to_toml(recipe), "utf-8")
        self._write_split(recipe, data)
        files = [file for file in (self.recipe, self.split) if file.is_file()]
        about = {
            "format": FORMAT,
            "id": uuid4().hex,
            "data": data.fingerprint(),
            "versions": list_versions(),
            "refit": refit,
            "digests": {file.name: hash_file(file) for file in files},
        }
        write_sealed(self.about, about)

    def _write_split(self, recipe: Recipe, data: PreparedData) -> None:
        if data.source is not None:
            drawn = recipe.data.find_split_seed(recipe.seed)
            of_source = data.labeled[data.labeled < len(data.source)]
            with atomic_write(self.split) as partial:
                write_manifest(partial, data.source, of_source, drawn)

    def mend_split(self, data: PreparedData) -> None:
        """Write the choice of labels again if its file is damaged: recipe and data decide it."""
        try:
            self.check_digest(self.split)
        except UserError:
            warnings.warn(f"{self.split}: was damaged and is written again", stacklevel=3)
            self._write_split(self.read_recipe(), data)

    @classmethod
    def check_free(cls, folder: Path) -> None:
        """Check that a new run can be created in ``folder``.

        Raises:
            UserError: if it exists and is not empty, or cannot be created.
        """
        for above in folder.parents:
            if above.is_file():
                raise UserError(f"{above} is a file, no folder; choose another one")
        if folder.resolve() == Path.cwd():  # it is replaced as a whole
            raise UserError(f"{str(folder)!r} is the folder you are in; choose a new one")
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            hint = f", or 'dualstudent resume {folder}'" if cls(folder).about.is_file() else ""
            raise UserError(f"{folder} already exists; choose another folder{hint}")

    @classmethod
    def open(cls, folder: Path | str, imports: Iterable[str] = ()) -> "Run":
        """Open an existing run.

        Args:
            folder: folder of the run.
            imports: import paths of networks and methods of your own that its recipe may name.

        Raises:
            UserError: if there is no run of this version's format.
        """
        folder = Path(folder)
        run = cls(folder, frozenset(imports))
        if not folder.exists():
            raise UserError(f"{folder} does not exist")
        if not run.about.is_file() or not run.recipe.is_file():
            raise UserError(f"{folder} is not a run: it has no run.json and recipe.toml")
        run.read_about()
        return run

    def read_about(self) -> dict[str, Any]:
        """Read the format, the digests, the fingerprint of the data and the versions of the run.

        Raises:
            UserError: if the file is damaged, or of a format that this version does not read.
        """
        about, sealed = read_sealed(self.about)
        found = about.get("format")
        if found not in (FORMAT, *_EARLIER_FORMATS):
            raise UserError(
                f"{self.folder} has format {found!r}, this version of dualstudent reads {FORMAT}"
            )
        if found == FORMAT and not (sealed and isinstance(about.get("digests"), dict)):
            raise UserError(f"{self.about}: is damaged; bring the file back from a copy")
        return about

    def check_digest(self, file: Path) -> None:
        """Check that a file of the run is as it was when the run began.

        Raises:
            UserError: otherwise.
        """
        expected = self.read_about().get("digests", {}).get(file.name)
        if expected is not None and hash_file(file) != expected:
            raise UserError(
                f"{file}: has changed since the run began; bring it back, or train a copy of it "
                "into another folder"
            )

    @property
    def evaluated_part(self) -> Literal["test", "validation", "source validation"]:
        """The part that it is evaluated on."""
        return self.read_recipe().data.evaluated_part

    def read_fingerprint(self) -> object:
        """Read the fingerprint of the data that the run started with."""
        return self.read_about().get("data")

    def list_other_versions(self) -> list[str]:
        """List the packages that had another version when the run began, in words.

        Raises:
            UserError: if the run names no versions.
        """
        begun = self.read_about().get("versions")
        if not isinstance(begun, dict):
            raise UserError(f"{self.about}: names no versions")
        return [
            f"{name} {begun.get(name)} (here {here})"
            for name, here in list_versions().items()
            if begun.get(name) != here
        ]

    def check_same_data(self, data: PreparedData) -> None:
        """Check that ``data`` are the data that the run started with.

        Raises:
            UserError: otherwise.
        """
        if self.read_fingerprint() != data.fingerprint():
            raise UserError(
                f"{self.folder}: the images or labels found now are not those the run began with "
                "(another version may also resize images differently); bring them back, or train "
                "again into another folder (--out)"
            )

    def check_same_labels(self, data: PreparedData) -> None:
        """Check that labeled training images and labels are those that the run started with.

        Raises:
            UserError: otherwise.
        """
        if data.source is not None and self.split.is_file():
            read_manifest(self.split, data.source)

    def check_recipe(self, recipe: Recipe) -> None:
        """Check that the run has this recipe.

        Raises:
            UserError: otherwise.
        """
        if not self.read_recipe().defines_same_run_as(recipe):
            raise UserError(f"{self.folder} holds a run of another recipe; choose another folder")
        self.check_method()

    def check_method(self) -> None:
        """Check that its methods have the same losses in the version of the run.

        Raises:
            UserError: otherwise.
        """
        used = {stage.method.name for stage in self.read_recipe().split_stages()}
        changed = sorted(used & _CHANGED_METHODS)
        if changed and self.read_about()["format"] == min(_EARLIER_FORMATS):
            raise UserError(
                f"{self.folder} was begun by an earlier version, whose {changed[0]} has another "
                "loss; train again into another folder"
            )

    def read_recipe(self) -> Recipe:
        """Read the recipe of the run.

        Raises:
            UserError: if it is invalid, was changed since the run began, or names code that is
                not among ``imports``.
        """
        table = self.read_recipe_table()
        check_imports(table, self.imports, self.recipe)
        return validate(table, str(self.recipe))

    def read_recipe_table(self) -> Table:
        """Read the recipe of the run without validating it; runs no code.

        Raises:
            UserError: if it cannot be read, or was changed since the run began.
        """
        self.check_digest(self.recipe)
        with warnings.catch_warnings(action="ignore", category=RenamedKeyWarning):
            table = read_recipe_table(str(self.recipe), None)  # the user need not edit it
        stages = table.get("stages")
        for section in (table, *(stages if isinstance(stages, list) else ())):
            method = section.get("method") if isinstance(section, dict) else None
            if isinstance(method, dict) and "neighbor_weight" in method:
                # A run states all settings; the earlier version did not have this one, only sums.
                method.setdefault("neighbor_distance", "sum")
        return table

    def read_metrics(self) -> list[dict[str, Any]]:
        """Read the metrics, one record per epoch.

        Raises:
            UserError: if they are damaged.
        """
        lines = read_text(self.metrics, _MOST_METRICS).splitlines()
        if self.result.is_file():
            if not lines:
                raise UserError(f"{self.metrics}: has no epochs; bring the file back from a copy")
            expected = self.read_result().get(_METRICS_DIGEST)
            if expected not in (None, hash_file(self.metrics)):
                raise UserError(f"{self.metrics}: is damaged; bring the file back from a copy")
        metrics = []
        for number, line in enumerate(lines, start=1):
            where = f"{self.metrics}, line {number}"
            metrics.append(parse_object(line, where))
            check_form(metrics[-1], Epoch, where)
        return metrics

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the run, so that no other process trains it at the same time.

        Raises:
            UserError: if another process trains it.
        """
        with self.about.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # released with the process
            except BlockingIOError as error:
                raise UserError(
                    f"{self.folder} is being trained by another process; wait for it, or stop it"
                ) from error
            yield

    def read_result(self) -> dict[str, Any]:
        """Read the figures of a finished run.

        Raises:
            UserError: if the run has not finished, or the file is damaged.
        """
        if not self.result.is_file():
            with self.lock():  # raises if it is being trained right now
                raise UserError(
                    f"{self.folder} has not finished; "
                    f"continue it with 'dualstudent resume {self.folder}'"
                )
        result, sealed = read_sealed(self.result)
        if not sealed and self.read_about()["format"] == FORMAT:
            raise UserError(f"{self.result}: is damaged; bring the file back from a copy")
        check_form(result, Result, self.result)
        return result

    def write_result(self, result: dict[str, Any]) -> None:
        """Write the figures of a finished run, with the digest of its metrics."""
        write_sealed(self.result, {_METRICS_DIGEST: hash_file(self.metrics)} | result)


def select_last_stage(metrics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Select the records of the last stage: only its networks are those of the finished run.

    Example:
        >>> select_last_stage([{"epoch": 1, "stage": "labels"}, {"epoch": 2, "stage": "both"}])
        [{'epoch': 2, 'stage': 'both'}]
    """
    last = metrics[-1].get("stage")  # without stages, there is no such key
    return [record for record in metrics if record.get("stage") == last]


def list_versions() -> dict[str, str]:
    """Return the versions of Python and of all packages that can change results."""
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
