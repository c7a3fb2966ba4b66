"""What the user of a comparison asked for."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dualstudent.errors import UserError
from dualstudent.grid import Where

Equal = Literal["steps", "time"]

MOST_SEEDS = 1000
_REFUSED_CHANGES = {
    "seed": "the seeds are 0, 1, …; set their number with --seeds",
    "data.split_seed": "the draws of labels are 0, 1, …; set their number with --seeds",
    "data.labels": "set the numbers of labels with --labels",
    "method.name": "name the methods with --methods",
}


@dataclass(frozen=True)
class ComparisonRequest:
    """What the user asked for.

    Attributes:
        methods: the rows, as ``METHOD`` or ``METHOD:key=value``.
        recipe: name or path of the recipe that all share; or
        data: own images, for which a recipe is chosen that suits each method.
        labels: numbers of labels; the columns. Default: that of the recipe.
        seeds: number of label draws, the same for all methods.
        initial_states: runs per draw that differ in everything random but the labels.
        equal: whether all methods take the same steps, or the time of the first one.
        changes: ``"key=value"`` settings of every run; ``method.…`` where a method has it.
        out: folder of the results.
        baselines: whether classifiers of scikit-learn are rows, too.
        ceiling: whether supervised learning from all labels is a row, too, as a reference.
        on: where the runs are trained.
        imports: import paths that the recipe may name, if it is one of a run.
    """

    methods: tuple[str, ...]
    recipe: str | None = None
    data: Path | None = None
    labels: tuple[int | str, ...] = ()
    seeds: int = 5
    initial_states: int = 1
    equal: Equal = "steps"
    changes: tuple[str, ...] = ()
    out: Path | None = None
    baselines: bool = False
    ceiling: bool = False
    on: Where = "local"
    imports: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the recipe or of the images."""
        path = Path(self.recipe or self.data or "").resolve()
        return path.name if path.is_dir() else path.stem

    @property
    def folder(self) -> Path:
        """Folder of the results."""
        return self.out or Path("runs/compare") / self.name

    @property
    def runs_folder(self) -> Path:
        """Folder of the runs."""
        return self.folder / "runs"

    @property
    def command(self) -> str:
        """The command that makes this request."""
        words = ["dualstudent", "compare", *([self.recipe] if self.recipe else [])]
        words += ["--data", str(self.data)] if self.data else []
        words += ["--methods", ",".join(self.methods), "--seeds", str(self.seeds)]
        words += ["--labels", ",".join(map(str, self.labels))] if self.labels else []
        words += ["--initial-states", str(self.initial_states)] if self.initial_states > 1 else []
        words += ["--equal", self.equal] if self.equal != "steps" else []
        words += ["--baselines"] if self.baselines else []
        words += ["--ceiling"] if self.ceiling else []
        words += [word for change in self.changes for word in ("--set", change)]
        words += [word for path in self.imports for word in ("--import", path)]
        words += ["--out", str(self.out)] if self.out else []
        words += ["--on", self.on] if self.on != "local" else []
        return shlex.join(words)

    @property
    def identity(self) -> dict[str, Any]:
        """What all runs in a folder must share. Rows, labels and seeds can be added later."""
        return {
            "recipe": self.recipe,
            "data": str(self.data.absolute()) if self.data else None,
            "set": list(self.changes),
            "equal": self.equal,
            "first method": self.methods[0] if self.equal == "time" else None,
        }


def check_request(request: ComparisonRequest) -> None:
    """Check what can be checked before anything is read.

    Raises:
        UserError: if parts of the request are missing or contradict each other.
    """
    if not request.methods:
        raise UserError("name the methods with --methods A,B ('dualstudent methods' lists them)")
    if (request.recipe is None) == (request.data is None):
        raise UserError("name either a recipe ('dualstudent recipes' lists them), or --data FOLDER")
    if not 1 <= request.seeds <= MOST_SEEDS or request.initial_states < 1:
        raise UserError(
            f"--seeds {request.seeds} --initial-states {request.initial_states}: use 1 to "
            f"{MOST_SEEDS} seeds, and at least one initial state"
        )
    if request.ceiling and request.data is not None and not request.labels:
        raise UserError("--ceiling: the methods learn from all labels already; add --labels N,M")
    for change in request.changes:
        key = find_key(change)
        if key in _REFUSED_CHANGES:
            raise UserError(f"{key}: {_REFUSED_CHANGES[key]}")


def find_key(change: str) -> str:
    """Return the key of ``"key=value"``."""
    return change.partition("=")[0].strip()
