"""Fig. 6: accuracy per class, on stable samples and on all."""

import json
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dualstudent.experiments.figures.colors import ALL, INK, STABLE
from dualstudent.experiments.figures.series import deviation
from dualstudent.experiments.results import FinishedRuns, format_spread
from dualstudent.experiments.schema import Experiment
from dualstudent.report.style import PAGE_WIDTH, escape_math, style_axes
from dualstudent.training.run import Run

PAPER_SHARE = 85  # % of the test set of CIFAR-10, "about"
_WIDTH = 0.4
_KINDS = (
    ("stable_class_accuracy", "stable samples", STABLE),
    ("class_accuracy", "all samples", ALL),
)


def draw(experiment: Experiment, runs: FinishedRuns) -> dict[str, Figure]:
    """Draw grouped bars, one panel for each cell that has runs."""
    cells = [cell for cell in runs if runs[cell]]
    if not cells:
        return {}
    figure = Figure(figsize=(PAGE_WIDTH, 0.9 + 2.9 * len(cells)), layout="constrained")
    sentences = []
    for axes, cell in zip(figure.subplots(len(cells), squeeze=False)[:, 0], cells, strict=True):
        results = [run.read_result() for run in runs[cell]]
        names = read_class_names(
            runs[cell][0], len(_read_headline(results[0])[0]["class_accuracy"])
        )
        share = format_spread(
            [fmean(f["stable_share"] for f in _read_headline(r)) for r in results]
        )
        style_axes(
            axes,
            escape_math(f"{cell.row}: {share} % are stable (paper: about {PAPER_SHARE} %)"),
        )
        _draw_bars(axes, results)
        axes.set_xticks(range(len(names)), [escape_math(name) for name in names])
        axes.tick_params("x", rotation=30)
        for tick in axes.get_xticklabels():
            tick.set(ha="right", rotation_mode="anchor")
        axes.grid(visible=False, axis="x")
        axes.set_ylabel("test accuracy in %")
        axes.set_ylim(0, 100)
        sentences.append(
            f"{cell.row}: {share} % of the test samples are stable; {_describe_gap(results)}"
        )
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=2, frameon=False)
    figure.set_label(
        "Test accuracy of each class on stable and on all samples at the last epoch, mean and "
        f"standard deviation over seeds. {'. '.join(sentences)}."
    )
    return {"stable-samples": figure}


def read_class_names(run: Run, count: int) -> list[str]:
    """Names of the classes from the split of a run; numbers if it cannot be read."""
    try:
        names = list(json.loads(run.split.read_text())["per_class"])
    except (OSError, ValueError, KeyError, TypeError):
        names = []
    return names if len(names) == count else [f"class {number}" for number in range(count)]


def collect_classes(results: Sequence[Mapping[str, Any]], kind: str) -> list[list[float]]:
    """For each class, the mean over the networks of each seed; missing values are left out."""
    per_seed = [
        [[v for v in values if v is not None] for values in zip(*columns, strict=True)]
        for columns in ([figures[kind] for figures in _read_headline(result)] for result in results)
    ]
    return [[fmean(v) for v in seeds if v] for seeds in zip(*per_seed, strict=True)]


def _read_headline(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [result["networks"][name] for name in result["headline"]]


def _draw_bars(axes: Axes, results: Sequence[Mapping[str, Any]]) -> None:
    for offset, (kind, label, color) in zip((-_WIDTH / 2, _WIDTH / 2), _KINDS, strict=True):
        values = {number: v for number, v in enumerate(collect_classes(results, kind)) if v}
        axes.bar(
            [number + offset for number in values],
            [fmean(v) for v in values.values()],
            _WIDTH * 0.92,
            yerr=[deviation(v) for v in values.values()] if len(results) > 1 else None,
            color=color,
            ecolor=INK,
            error_kw={"linewidth": 1},
            label=label,
        )


def _describe_gap(results: Sequence[Mapping[str, Any]]) -> str:
    """A phrase on the mean over classes, on stable and on all samples."""
    means = ([fmean(v) for v in collect_classes(results, kind) if v] for kind, _, _ in _KINDS)
    stable, everything = (f"{fmean(m):.2f} %" if m else "none" for m in means)
    return f"mean over the classes {stable} on stable, {everything} on all samples"
