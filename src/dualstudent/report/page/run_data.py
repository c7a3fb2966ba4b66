"""The data that the page shows about finished runs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from dualstudent.data.prepared import PreparedData
from dualstudent.errors import UserError, escape_line
from dualstudent.recipes.schema import Recipe
from dualstudent.report.page.domains import Domains, compare_domains
from dualstudent.report.page.evaluation import Evaluation, evaluate
from dualstudent.report.page.findings import FindingGallery, build_finding_galleries
from dualstudent.training.gain import Gain, read_gain
from dualstudent.training.inference import Predictions
from dualstudent.training.inspection import read_inspection
from dualstudent.training.measured import MeasuredErrors, read_measured
from dualstudent.training.model import load_trained
from dualstudent.training.run import Run
from dualstudent.training.trainer import Trainer

_PICTURES, _PICTURES_BESIDE_OTHERS = 18, 8  # in a gallery


@dataclass(frozen=True)
class RunData:
    """What the page shows about one run.

    Attributes:
        name: of the run, unique on the page.
        recipe: of the run.
        metrics: one record per epoch.
        result: figures after the last epoch.
        part: the data it was evaluated on.
        labeled: number of labeled training samples.
        unlabeled: number of unlabeled training samples; 0 if the method does not use them.
        classes: their names, each on one line.
        unreadable: number of images that could not be read, in training and test.
        evaluation: of the exported network; None if the run was not evaluated.
        gain: what unlabeled images gained; None if it was not compared with the labels alone.
        comparison: errors of others on the same images; None if there are none.
        findings: training images to look at, found by their features.
        domains: source and target; None without a target.
        is_refit: whether the model is trained once more on all labels before it is used.
    """

    name: str
    recipe: Recipe
    metrics: list[dict[str, Any]]
    result: dict[str, Any]
    part: Literal["test", "validation", "source validation"]
    labeled: int
    unlabeled: int
    classes: tuple[str, ...]
    unreadable: int
    evaluation: Evaluation | None
    gain: Gain | None = None
    comparison: MeasuredErrors | None = None
    findings: Sequence[FindingGallery] = ()
    domains: Domains | None = None
    is_refit: bool = False

    @property
    def figures(self) -> dict[str, Any]:
        """Figures of the exported network after the last epoch, for a run that was evaluated."""
        assert self.evaluation is not None
        figures: dict[str, Any] = self.result["networks"][self.evaluation.network]
        return figures


def collect_run_data(
    runs: Sequence[Run],
    data: Sequence[PreparedData | None] = (),
    trained: Sequence[Trainer] = (),
) -> list[RunData]:
    """Collect the data of finished runs, to be compared on one page.

    Args:
        runs: at least one; if labels alone turned out better, the page shows that model.
        data: for each run, the data it was trained on from Python, if any.
        trained: the trainers of the runs that are used, if still in memory; default: loaded.

    Raises:
        UserError: if a run has not finished or is damaged, its data have changed or are missing,
            or two runs were evaluated on different samples.
    """
    for run in runs:  # before the slow part
        _check_files(run.used)
    pictures = _PICTURES if len(runs) == 1 else _PICTURES_BESIDE_OTHERS
    found: list[RunData] = []
    tests: list[_TestSet] = []
    nothing = [None] * len(runs)
    for run, name, prepared, at_hand in zip(
        runs, _make_names(runs), data or nothing, trained or nothing, strict=True
    ):
        trainer = at_hand or load_trained(run.used, prepared)
        if len(runs) > 1:
            tests.append(_TestSet.describe(run, trainer.data))
            tests[0].check_same_as(tests[-1])
        shown = _collect(run.used, name, trainer, pictures)
        result = run.read_result()
        findings = build_finding_galleries(read_inspection(result), trainer.data, pictures)
        shown = replace(shown, gain=read_gain(result), comparison=read_measured(result))
        found.append(replace(shown, findings=findings, is_refit=run.wants_refit))
    return found


@dataclass(frozen=True)
class _TestSet:
    """What a run was evaluated on, without the samples themselves."""

    run: Run
    fingerprint: str
    samples: int
    description: str

    @classmethod
    def describe(cls, run: Run, data: PreparedData) -> "_TestSet":
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


def _check_files(run: Run) -> None:
    """Refuse a finished run whose files are damaged."""
    result, metrics = run.read_result(), run.read_metrics()
    if metrics[-1].get("test") != result["networks"]:
        raise UserError(
            f"{run.result}: its networks differ from the last epoch of {run.metrics.name}; "
            "restore both from a copy, or train again"
        )


def _collect(run: Run, name: str, trainer: Trainer, pictures: int) -> RunData:
    recipe, data, result = trainer.recipe, trainer.data, run.read_result()
    part = recipe.data.evaluated_part
    evaluation = None
    if len(data.test_labels):
        _check_figures(run, trainer)
        evaluation = evaluate(
            _predict(run, trainer),
            data,
            trainer.method.exported,
            trainer.method.headline,
            calibrate=part != "test",
            pictures=pictures,
        )
    return RunData(
        name,
        recipe,
        run.read_metrics(),
        result,
        part,
        len(data.labeled),
        len(data.unlabeled) if trainer.method.views.unlabeled else 0,
        tuple(escape_line(each) for each in data.classes),
        result.get("unreadable_images", 0) + data.unreadable,
        evaluation,
        domains=compare_domains(trainer, run),
    )


def _check_figures(run: Run, trainer: Trainer) -> None:
    """Refuse a result without all figures of all networks and classes, as of earlier versions."""
    networks, classes = run.read_result()["networks"], len(trainer.data.classes)
    whole = networks.keys() >= trainer.method.evaluated.keys() and all(
        "top5_error" in figures
        and len(figures.get("class_accuracy", ())) == classes
        and len(figures.get("stable_class_accuracy", ())) == classes
        for figures in networks.values()
    )
    if not whole:
        raise UserError(f"{run.result}: lacks figures that the page shows; train again")


def _predict(run: Run, trainer: Trainer) -> Predictions:
    if trainer.data.tally is not None:
        trainer.data.tally.write_to(run.log)  # which names most unreadable images already
    return trainer.predict_test()


def _make_names(runs: Sequence[Run]) -> list[str]:
    """The names of the folders, or their paths if two have the same name."""
    names = [run.folder.resolve().name for run in runs]
    if len(set(names)) < len(names):
        names = [str(run.folder) for run in runs]
    return [escape_line(name) for name in names]
