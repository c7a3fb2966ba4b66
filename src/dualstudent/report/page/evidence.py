"""What a page shows of a finished run: what it left, and what its networks say of the test."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from dualstudent.data.prepared import PreparedData
from dualstudent.errors import UserError, escape_line
from dualstudent.recipes.schema import Recipe
from dualstudent.report.page.verdict import Verdict, judge
from dualstudent.training.inference import Predictions, predict
from dualstudent.training.model import load_trained
from dualstudent.training.run import Run
from dualstudent.training.trainer import Trainer

_PICTURES, _PICTURES_BESIDE_OTHERS = 18, 8  # in a gallery


@dataclass(frozen=True)
class Evidence:
    """Of one run; small, however many samples it was tested on.

    Attributes:
        name: of the run, different from those beside it.
        recipe: by which it was trained.
        metrics: what was measured, epoch by epoch.
        result: its figures at the end.
        part: what it was evaluated on.
        labeled: how many samples had a label.
        taught: on how many samples the students taught each other.
        classes: the names of the C classes, each on one line.
        left_out: how many images could not be read, in training and test.
        verdict: what the exported network says of the evaluated samples; None without any.
    """

    name: str
    recipe: Recipe
    metrics: list[dict[str, Any]]
    result: dict[str, Any]
    part: Literal["test", "validation", "source validation"]
    labeled: int
    taught: int
    classes: tuple[str, ...]
    left_out: int
    verdict: Verdict | None

    @property
    def figures(self) -> dict[str, Any]:
        """Those of the exported network at the end; only of a run that was evaluated."""
        assert self.verdict is not None
        figures: dict[str, Any] = self.result["networks"][self.verdict.network]
        return figures


def gather(
    runs: Sequence[Run],
    data: Sequence[PreparedData | None] = (),
    trained: Sequence[Trainer] = (),
) -> list[Evidence]:
    """The evidence of finished runs that may stand side by side.

    Args:
        runs: at least one.
        data: what each was handed over, in the order of ``runs``; default: nothing.
        trained: the trainers of the runs, if they are still there; default: loaded.

    Raises:
        UserError: if a run has not finished or is damaged, if its data have changed since or were
            handed over, or if two runs were evaluated on different samples.
    """
    for run in runs:  # refuses one that has not finished before others are looked at
        _check_is_whole(run)
    pictures = _PICTURES if len(runs) == 1 else _PICTURES_BESIDE_OTHERS
    found: list[Evidence] = []
    tests: list[_TestSet] = []
    nothing = [None] * len(runs)
    for run, name, handed_over, at_hand in zip(
        runs, _names(runs), data or nothing, trained or nothing, strict=True
    ):
        trainer = at_hand or load_trained(run, handed_over)
        if len(runs) > 1:
            tests.append(_TestSet.of(run, trainer.data))
            tests[0].check_same_as(tests[-1])
        found.append(_of_one(run, name, trainer, pictures))
    return found


@dataclass(frozen=True)
class _TestSet:
    """What a run was evaluated on, after its samples have been let go."""

    run: Run
    fingerprint: str
    samples: int
    description: str

    @classmethod
    def of(cls, run: Run, data: PreparedData) -> "_TestSet":
        shape = " × ".join(map(str, data.test.shape))
        count, classes = len(data.test_labels), len(data.classes)
        return cls(
            run, data.test_fingerprint(), count, f"{count:,} of {shape} in {classes} classes"
        )

    def check_same_as(self, other: "_TestSet") -> None:
        if self.fingerprint == other.fingerprint:
            return
        compared = f"{self.run.folder} and {other.run.folder} cannot be compared"
        for each in (self, other):
            if each.samples == 0:
                raise UserError(
                    f"{compared}: {each.run.folder} was not evaluated; "
                    "compare runs with the same test set"
                )
        raise UserError(
            f"{compared}: they were not evaluated on the same samples "
            f"({self.description}; {other.description}); compare runs with the same test set"
        )


def _check_is_whole(run: Run) -> None:
    """Refuse a finished run whose files do not hold what charts are drawn of."""
    result, metrics = run.read_result(), run.read_metrics()
    if not metrics:
        raise UserError(f"{run.metrics}: holds no epoch; bring it back from a copy, or train again")
    if metrics[-1].get("test") != result["networks"]:
        raise UserError(
            f"{run.result}: its networks are not those at the end of {run.metrics.name}; "
            "bring both back from a copy, or train again"
        )


def _of_one(run: Run, name: str, trainer: Trainer, pictures: int) -> Evidence:
    recipe, data, result = trainer.recipe, trainer.data, run.read_result()
    part = recipe.data.evaluated_part
    verdict = None
    if len(data.test_labels):
        verdict = judge(
            _asked(run, trainer),
            data,
            trainer.method.exported,
            trainer.method.headline,
            tempered=part != "test",
            pictures=pictures,
        )
    return Evidence(
        name,
        recipe,
        run.read_metrics(),
        result,
        part,
        len(data.labeled),
        len(data.unlabeled) if trainer.method.views.unlabeled else 0,
        tuple(escape_line(each) for each in data.classes),
        result.get("unreadable_images", 0) + data.left_out,
        verdict,
    )


def _asked(run: Run, trainer: Trainer) -> Predictions:
    data = trainer.data
    if data.tally is not None:
        data.tally.write_to(run.log)  # where most of the broken images are named already
    everything = torch.arange(len(data.test_labels))
    seed, device = trainer.recipe.seed, trainer.fabric.device
    return Predictions.join(predict(trainer.method, data.test, everything, seed, device))


def _names(runs: Sequence[Run]) -> list[str]:
    """The names of their folders, or the whole paths if these do not tell them apart."""
    names = [run.folder.resolve().name for run in runs]
    if len(set(names)) < len(names):
        names = [str(run.folder) for run in runs]
    return [escape_line(name) for name in names]
