"""What a finished run measured, in the terms of an experiment."""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from dualstudent.experiments.schema import Measure
from dualstudent.training.run import Run

MEASURES: dict[Measure, str] = {
    "error": "test error in %",
    "accuracy": "test accuracy in %",
    "top5_error": "top-5 test error in %",
}


def headline(run: Run, measure: Measure) -> float:
    """Mean over the headline networks at the last epoch: nothing is chosen by it."""
    result = run.read_result()
    return fmean(_value(result["networks"][name], measure) for name in result["headline"])


def chosen_on_test(run: Run, measure: Measure) -> float:
    """Best headline network of all epochs, as the paper's authors reported; not honest."""
    best = max if measure == "accuracy" else min
    networks = run.read_result()["headline"]
    return best(
        _value(figures, measure)
        for record in run.read_metrics()
        for name, figures in record["test"].items()
        if name in networks
    )


def spread(values: Sequence[float]) -> str:
    """Mean and standard deviation; the latter needs two values.

    Example:
        >>> spread([1.0, 2.0, 3.0]), spread([2.0])
        ('2.00 ± 1.00', '2.00')
    """
    mean = f"{fmean(values):.2f}"
    return f"{mean} ± {stdev(values):.2f}" if len(values) > 1 else mean


def _value(figures: Mapping[str, Any], measure: Measure) -> float:
    if measure == "accuracy":
        return 100 - float(figures["error"])
    return float(figures[measure])
