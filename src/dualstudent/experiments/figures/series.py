"""Values against epochs or time: mean and standard deviation over seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from matplotlib.axes import Axes

from dualstudent.experiments.results import format_spread
from dualstudent.training.run import Run


@dataclass(frozen=True)
class Series:
    """Values of all seeds, by epoch or time.

    Attributes:
        x: epochs or times, in ascending order.
        values: for each of them, one value per seed.
    """

    x: Sequence[float]
    values: list[list[float]]

    @property
    def means(self) -> list[float]:
        """Mean over the seeds, for each x."""
        return [fmean(values) for values in self.values]

    @property
    def deviations(self) -> list[float]:
        """Standard deviation over the seeds, for each x."""
        return [deviation(values) for values in self.values]

    @property
    def last(self) -> str:
        """Mean and standard deviation at the end."""
        return format_spread(self.values[-1])


def deviation(values: Sequence[float]) -> float:
    """The standard deviation of a sample; 0 for a single value."""
    return stdev(values) if len(values) > 1 else 0.0


def collect_seeds(per_seed: Sequence[Mapping[int, float]]) -> Series:
    """Join the values of seeds, given as epoch → value each.

    Epochs that a seed lacks are left out, as a mean over fewer seeds would jump.

    Example:
        >>> collect_seeds([{1: 10.0, 2: 30.0}, {1: 20.0}]).means
        [15.0]
    """
    epochs = sorted(set(per_seed[0]).intersection(*per_seed[1:]))
    return Series(epochs, [[values[epoch] for values in per_seed] for epoch in epochs])


def read_evaluated(run: Run) -> list[dict[str, Any]]:
    """The metrics of the epochs at which a run was evaluated."""
    return [record for record in run.read_metrics() if record["test"]]


def read_errors(run: Run) -> dict[int, float]:
    """Epoch → error in percent, mean over the headline networks."""
    headline = run.read_result()["headline"]
    return {
        record["epoch"]: fmean(record["test"][name]["error"] for name in headline)
        for record in read_evaluated(run)
        if record["test"].keys() >= set(headline)  # an earlier stage may have other networks
    }


def draw_series(axes: Axes, series: Series, label: str, color: str, dashes: str = "-") -> None:
    """Draw the mean as a line, and one standard deviation on either side as a band."""
    axes.plot(series.x, series.means, dashes, color=color, label=label, linewidth=1.8)
    if len(series.values[0]) > 1:
        pairs = list(zip(series.means, series.deviations, strict=True))
        low, high = [m - d for m, d in pairs], [m + d for m, d in pairs]
        axes.fill_between(series.x, low, high, color=color, alpha=0.2, linewidth=0)
