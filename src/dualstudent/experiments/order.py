"""Which row of a column is ahead, and which differences are no more than chance."""

from collections.abc import Iterable, Mapping
from statistics import fmean, stdev

from dualstudent.experiments.measures import headline
from dualstudent.experiments.plan import Plan
from dualstudent.experiments.schema import Cell
from dualstudent.training.run import Run

BySeed = dict[int, float]

_RULE = (
    "A row ties with another if their difference, seed by seed, is on average no larger than its "
    "standard deviation over the seeds."
)


def order_notes(plan: Plan, runs: Mapping[Cell, list[Run]]) -> list[str]:
    """A sentence for the rows that one column, and one panel of the figure, compares.

    Without two seeds that all these rows have it is left out, for then there is no spread.

    Args:
        plan: what was to be run.
        runs: the finished runs of each cell.
    """
    compared: dict[str, list[Cell]] = {}
    for cell in filter(runs.get, plan.recipes):
        panel = plan.experiment.row(cell.row).panel
        compared.setdefault(f"{cell.column}, {panel}" if panel else cell.column, []).append(cell)
    notes = [
        f"{where}, best first: {order}"
        for where, cells in compared.items()
        if (order := _order(plan, {cell: runs[cell] for cell in cells}))
    ]
    return [*notes, _RULE] if notes else []


def ties(row: BySeed, other: BySeed) -> bool:
    """Whether two rows differ by no more than chance; of both, the same two or more seeds.

    Example:
        >>> row = {0: 10.0, 1: 12.0}
        >>> ties(row, {0: 11.0, 1: 11.5}), ties(row, {0: 9.0, 1: 11.0})
        (True, False)
    """
    differences = [value - other[seed] for seed, value in row.items()]
    return abs(fmean(differences)) <= stdev(differences)


def _order(plan: Plan, runs: Mapping[Cell, list[Run]]) -> str | None:
    rows = {cell.row: _by_seed(plan, cell, of_cell) for cell, of_cell in runs.items()}
    shared = set.intersection(*map(set, rows.values()))
    if len(rows) < 2 or len(shared) < 2:
        return None
    rows = {name: {seed: values[seed] for seed in shared} for name, values in rows.items()}
    highest_first = plan.experiment.measure_of(next(iter(runs))) == "accuracy"
    order = sorted(rows, key=lambda name: fmean(rows[name].values()), reverse=highest_first)
    first, *others = order
    tied = [name for name in others if ties(rows[name], rows[first])]
    verdict = f"ties with {first}: {', '.join(tied)}" if tied else f"{first} is ahead"
    return f"{', '.join(order)}; {verdict}.{_order_of_the_paper(plan, runs, highest_first)}"


def _order_of_the_paper(plan: Plan, cells: Iterable[Cell], highest_first: bool) -> str:
    values = {cell.row: plan.experiment.paper(cell) for cell in cells}
    means = {row: value.mean for row, value in values.items() if value is not None}
    if len(means) < 2:
        return ""
    return (
        f" In the paper: {', '.join(sorted(means, key=means.__getitem__, reverse=highest_first))}."
    )


def _by_seed(plan: Plan, cell: Cell, runs: list[Run]) -> BySeed:
    measure = plan.experiment.measure_of(cell)
    return {run.read_recipe().seed: headline(run, measure) for run in runs}
