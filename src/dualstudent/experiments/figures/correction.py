"""Fig. 3: whether a misclassified sample is corrected, with and without a second student."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dualstudent.experiments.figures.colors import INK, color_of
from dualstudent.experiments.figures.series import draw_series, over_seeds
from dualstudent.experiments.figures.tracked import MODELS, Tracked, read_tracked
from dualstudent.experiments.finished import FinishedRuns
from dualstudent.experiments.panels import TWO_CLASSES
from dualstudent.experiments.schema import Experiment
from dualstudent.methods import DualStudentSettings
from dualstudent.report.style import LINE_LENGTH, PAGE_WIDTH, style_epoch_axes
from dualstudent.training.run import Run


@dataclass(frozen=True)
class _Look:
    label: str
    color: str
    dashes: str = "-"


def draw(experiment: Experiment, runs: FinishedRuns) -> dict[str, Figure]:
    """One sample on the left, all of them on the right, of the rows of panel ``two classes``."""
    cells = [cell for cell in runs if experiment.row(cell.row).panel == TWO_CLASSES]
    of_panel = [run for cell in cells for run in runs[cell]]
    pairs = {_seed(run): run for run in of_panel if _is_dual_student(run)}
    singles = {_seed(run): run for run in of_panel if not _is_dual_student(run)}
    both = sorted(pairs.keys() & singles.keys())
    if not both:
        return {}
    seeds = [read_tracked(pairs[seed], singles[seed]) for seed in both]
    looks = _looks(pairs[both[0]], singles[both[0]])
    figure = Figure(figsize=(PAGE_WIDTH, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_example(left, seeds, looks)
    _draw_all(right, seeds, looks)
    handles, labels = right.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=len(MODELS), frameon=False)
    counts = describe(seeds)
    figure.supxlabel(fill(counts, LINE_LENGTH), x=0.01, ha="left", fontsize=9)
    figure.set_label(
        "Two classes. Left: probability of the true class of one test sample against epochs. "
        "Right: of the samples that f₁ and fₛ had both wrong at first, the share that each model "
        f"has right. {counts}"
    )
    return {"correction": figure}


def describe(seeds: Sequence[Tracked]) -> str:
    """What was chosen and how; and what became of all samples, not only of the chosen one."""
    chosen = _example(seeds)
    rule = "wrong at first for f₁ and fₛ and right at the end for f₁ alone"
    if chosen is None:
        shown = f"No sample was {rule}."
    else:
        shown = (
            f"Shown: test sample {chosen[1]} of seed {chosen[0].seed}, among those that were "
            f"{rule} the one on which they differ most."
        )
    counts = {model: [tracked.corrected(model) for tracked in seeds] for model in MODELS}
    corrected = ", ".join(
        f"{model} {sum(right for right, _ in pairs)} of {sum(wrong for _, wrong in pairs)}"
        for model, pairs in counts.items()
    )
    seeds_said = f"{len(seeds)} seed{'s' if len(seeds) > 1 else ''}"
    return (
        f"{shown} Corrected at the end, of the samples misclassified at epoch "
        f"{seeds[0].epochs[0]} ({seeds_said}, {len(seeds[0].wrong_at_first)} samples each): "
        f"{corrected}."
    )


def _seed(run: Run) -> int:
    return run.read_recipe().seed


def _is_dual_student(run: Run) -> bool:
    return isinstance(run.read_recipe().method, DualStudentSettings)


def _looks(dual_student: Run, mean_teacher: Run) -> dict[str, _Look]:
    ours, theirs = (color_of(run.read_recipe()) for run in (dual_student, mean_teacher))
    return {
        "f₁": _Look("f₁, Dual Student", ours),
        "f₂": _Look("f₂, Dual Student", ours, "--"),
        "fₛ": _Look("fₛ, student of Mean Teacher", theirs),
    }


def _example(seeds: Sequence[Tracked]) -> tuple[Tracked, int] | None:
    """The sample to show, from the first seed that has one."""
    found = ((tracked, tracked.example()) for tracked in seeds)
    return next(((tracked, sample) for tracked, sample in found if sample is not None), None)


def _draw_example(axes: Axes, seeds: Sequence[Tracked], looks: Mapping[str, _Look]) -> None:
    style_epoch_axes(axes, "one sample: probability of its class")
    axes.set_ylim(-0.02, 1.02)
    axes.axhline(0.5, color=INK, linewidth=0.8, linestyle=":")
    chosen = _example(seeds)
    if chosen is None:
        axes.text(0.5, 0.55, "no such sample", ha="center", transform=axes.transAxes)
        return
    tracked, sample = chosen
    for model, look in looks.items():
        series = over_seeds([tracked.probability(model, sample)])
        draw_series(axes, series, look.label, look.color, look.dashes)


def _draw_all(axes: Axes, seeds: Sequence[Tracked], looks: Mapping[str, _Look]) -> None:
    style_epoch_axes(axes, "all samples wrong at first: now right, in %")
    axes.set_ylim(-2, 102)
    with_any = [tracked for tracked in seeds if tracked.wrong_at_first.any()]
    if not with_any:
        axes.text(0.5, 0.55, "none was wrong", ha="center", transform=axes.transAxes)
        return
    for model, look in looks.items():
        series = over_seeds([tracked.share_right(model) for tracked in with_any])
        draw_series(axes, series, look.label, look.color, look.dashes)
