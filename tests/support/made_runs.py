"""Finished runs without training, and what pictures show of them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from dualstudent import Run, load_recipe
from dualstudent.experiments.schema import Experiment
from dualstudent.recipes.reading import to_toml
from dualstudent.sealed import write_sealed
from dualstudent.training.recorder import summarize_metrics
from dualstudent.training.run import FORMAT

Record = dict[str, Any]


def network(error: float, **figures: Any) -> Record:
    """What evaluation says of one network."""
    return {
        "error": error,
        "top5_error": None,
        "stable_share": 80.0,
        "stable_accuracy": None,
        "class_accuracy": [],
        "stable_class_accuracy": [],
    } | figures


def line(epoch: int, test: Mapping[str, Record], **more: Any) -> Record:
    """One line of the metrics."""
    return {"epoch": epoch, "step": 10 * epoch, "loss": [], "test": dict(test)} | more


def made_run(
    folder: Path,
    metrics: Sequence[Record],
    *changes: str,
    headline: Sequence[str] = (),
    classes: Sequence[str] = (),
) -> Run:
    """A run of the demo with ``changes`` that measured ``metrics``."""
    folder.mkdir(parents=True)
    run = Run(folder)
    run.recipe.write_text(to_toml(load_recipe("digits", list(changes))), "utf-8")
    run.metrics.write_text("".join(json.dumps(record) + "\n" for record in metrics))
    names = list(headline) or list(metrics[-1]["test"])
    run.write_result(summarize_metrics(list(metrics), names, seconds=1))
    write_sealed(run.about, {"format": FORMAT, "digests": {}})
    if classes:
        run.split.write_text(json.dumps({"per_class": dict.fromkeys(classes, 1)}))
    return run


def experiment(figure: str, rows: Sequence[Mapping[str, Any]], **more: Any) -> Experiment:
    """An experiment of one column, unless ``more`` says otherwise."""
    return Experiment.model_validate(
        {
            "name": "made",
            "title": "Made up",
            "place": "nowhere",
            "recipe": "digits",
            "seeds": 2,
            "figure": figure,
            "columns": [{"name": "1k labels"}],
            "rows": rows,
            "cpu": {"smaller": "everything", "seeds": 1, "rows": {rows[0]["name"]: {}}},
        }
        | more
    )


def drawn_lines(axes: Axes) -> dict[str, tuple[list[float], list[float]]]:
    """First line of the label → x and y."""
    return {
        str(drawn.get_label()).split("\n")[0]: (
            np.asarray(drawn.get_xdata()).tolist(),
            np.asarray(drawn.get_ydata()).tolist(),
        )
        for drawn in axes.lines
    }
