"""Fig. 3: whether a misclassified sample is corrected, with and without a second student."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dualstudent.experiments.figures.colors import INK, choose_color
from dualstudent.experiments.figures.series import collect_seeds, draw_series
from dualstudent.experiments.figures.tracked import MODELS, TrackedSamples, read_tracked
from dualstudent.experiments.results import FinishedRuns
from dualstudent.experiments.schema import TWO_CLASSES, Experiment
from dualstudent.methods import DualStudentSettings
from dualstudent.report.style import LINE_LENGTH, PAGE_WIDTH, style_epoch_axes
from dualstudent.training.run import Run


@dataclass(frozen=True)
class _LineStyle:
    label: str
    color: str
    dashes: str = "-"


def draw(experiment: Experiment, runs: FinishedRuns) -> dict[str, Figure]:
    """One sample on the left, all of them on the right, of the rows of panel ``two classes``."""
    cells = [cell for cell in runs if experiment.row(cell.row).panel == TWO_CLASSES]
    of_panel = [run for cell in cells for run in runs[cell]]
    pairs = {_read_seed(run): run for run in of_panel if _is_dual_student(run)}
    singles = {_read_seed(run): run for run in of_panel if not _is_dual_student(run)}
    both = sorted(pairs.keys() & singles.keys())
    if not both:
        return {}
    seeds = [read_tracked(pairs[seed], singles[seed]) for seed in both]
    styles = _choose_styles(pairs[both[0]], singles[both[0]])
    figure = Figure(figsize=(PAGE_WIDTH, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_example(left, seeds, styles)
    _draw_all(right, seeds, styles)
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


def describe(seeds: Sequence[TrackedSamples]) -> str:
    """Sentences on the sample that is shown, and on how many samples each model corrected."""
    chosen = _find_example(seeds)
    rule = "wrong at first for f₁ and fₛ and right at the end for f₁ alone"
    if chosen is None:
        shown = f"No sample was {rule}."
    else:
        shown = (
            f"Shown: test sample {chosen[1]} of seed {chosen[0].seed}, among those that were "
            f"{rule} the one on which they differ most."
        )
    counts = {model: [tracked.count_corrected(model) for tracked in seeds] for model in MODELS}
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


def _read_seed(run: Run) -> int:
    return run.read_recipe().seed


def _is_dual_student(run: Run) -> bool:
    return isinstance(run.read_recipe().method, DualStudentSettings)


def _choose_styles(dual_student: Run, mean_teacher: Run) -> dict[str, _LineStyle]:
    ours, theirs = (choose_color(run.read_recipe()) for run in (dual_student, mean_teacher))
    return {
        "f₁": _LineStyle("f₁, Dual Student", ours),
        "f₂": _LineStyle("f₂, Dual Student", ours, "--"),
        "fₛ": _LineStyle("fₛ, student of Mean Teacher", theirs),
    }


def _find_example(seeds: Sequence[TrackedSamples]) -> tuple[TrackedSamples, int] | None:
    """The sample to show, from the first seed that has one."""
    found = ((tracked, tracked.find_example()) for tracked in seeds)
    return next(((tracked, sample) for tracked, sample in found if sample is not None), None)


def _draw_example(
    axes: Axes, seeds: Sequence[TrackedSamples], styles: Mapping[str, _LineStyle]
) -> None:
    style_epoch_axes(axes, "one sample: probability of its class")
    axes.set_ylim(-0.02, 1.02)
    axes.axhline(0.5, color=INK, linewidth=0.8, linestyle=":")
    chosen = _find_example(seeds)
    if chosen is None:
        axes.text(0.5, 0.55, "no such sample", ha="center", transform=axes.transAxes)
        return
    tracked, sample = chosen
    for model, style in styles.items():
        series = collect_seeds([tracked.probability(model, sample)])
        draw_series(axes, series, style.label, style.color, style.dashes)


def _draw_all(
    axes: Axes, seeds: Sequence[TrackedSamples], styles: Mapping[str, _LineStyle]
) -> None:
    style_epoch_axes(axes, "all samples wrong at first: now right, in %")
    axes.set_ylim(-2, 102)
    with_any = [tracked for tracked in seeds if tracked.wrong_at_first.any()]
    if not with_any:
        axes.text(0.5, 0.55, "none was wrong", ha="center", transform=axes.transAxes)
        return
    for model, style in styles.items():
        series = collect_seeds([tracked.share_correct(model) for tracked in with_any])
        draw_series(axes, series, style.label, style.color, style.dashes)
