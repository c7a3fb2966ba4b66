"""Scores from errors written by hand."""

from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from dualstudent import Run
from dualstudent.experiments.comparison_table import describe_order
from dualstudent.experiments.figures.comparison import draw_comparison
from dualstudent.experiments.schema import Cell
from dualstudent.experiments.scores import Score, compute_scores
from tests.support.made_runs import drawn_lines, line, made_run, network

ERRORS = {
    Cell("a", "few"): [20.0, 24.0, 22.0, 26.0],
    Cell("b", "few"): [15.0, 17.0, 19.0, 16.0],
    Cell("c", "few"): [16.0, 15.0, 20.0, 18.0],
    Cell("a", "many"): [4.0, 5.0, 6.0, 7.0],
    Cell("b", "many"): [8.0, 5.0, 9.0, 7.0],
    Cell("c", "many"): [30.0, 31.0, 32.0, 30.0],
}


@pytest.fixture
def runs(tmp_path: Path) -> dict[Cell, list[Run]]:
    """Runs of two epochs; the first epoch is 10 points worse."""
    return {
        cell: [
            made_run(
                tmp_path / f"{cell}{number}",
                [line(1, {"student": network(error + 10)}), line(2, {"student": network(error)})],
            )
            for number, error in enumerate(errors)
        ]
        for cell, errors in ERRORS.items()
    }


@pytest.mark.parametrize("states", [1, 2])
def test_differences_are_to_the_best_and_paired_by_the_draws(
    runs: dict[Cell, list[Run]], states: int
) -> None:
    found = {score.cell: score for score in compute_scores(runs, states)}
    draws = {cell: np.reshape(e, (-1, states)).mean(axis=1) for cell, e in ERRORS.items()}
    best = {"few": Cell("b", "few"), "many": Cell("a", "many")}
    raw = {}
    for cell, score in found.items():
        if cell == best[cell.column]:
            assert (score.difference, score.p_value) == (None, None)
            continue
        expected = scipy.stats.ttest_rel(draws[cell], draws[best[cell.column]])
        assert score.difference is not None
        assert score.difference.p_value == pytest.approx(expected.pvalue)
        raw[cell] = expected.pvalue
    smallest = min(raw, key=raw.__getitem__)
    corrected = found[smallest].p_value
    assert corrected == pytest.approx(min(1, 4 * raw[smallest]))  # of all four in the table
    largest = found[max(raw, key=raw.__getitem__)]
    assert largest.p_value == max(s.p_value for s in found.values() if s.p_value is not None)


def test_a_reference_is_never_the_best_and_not_counted(runs: dict[Cell, list[Run]]) -> None:
    others = [Score(Cell("d", "few"), [[50.0], [60.0], [70.0], [80.0]], seconds=1, steps=0)]
    found = {score.cell: score for score in compute_scores(runs, 1, others, references={"b"})}
    best = ERRORS[Cell("c", "few")]  # although b is lower
    assert found[Cell("c", "few")].difference is None
    ceiling = found[Cell("b", "few")]
    assert ceiling.difference is not None
    assert ceiling.difference.mean == pytest.approx(np.mean(ERRORS[Cell("b", "few")]) - 17.25)
    assert ceiling.p_value is None
    added = found[Cell("d", "few")].difference
    assert added is not None
    expected = scipy.stats.ttest_rel([50.0, 60.0, 70.0, 80.0], best)
    assert added.p_value == pytest.approx(expected.pvalue)
    judged = [score.p_value for score in found.values() if score.p_value is not None]
    assert len(judged) == 3  # a and d with few labels, c with many
    raw = [s.difference.p_value for s in found.values() if s.p_value is not None and s.difference]
    assert min(judged) == pytest.approx(3 * min(p for p in raw if p is not None))


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        ([[10.0], [90.0]], "; not told apart from it: b"),  # one seed
        ([[10.0, 12.0], [10.0, 12.0]], "; not told apart from it: b"),
        ([[10.1, 12.2], [11.1, 13.2]], "; not told apart from it: b"),  # equal differences
        ([[10.0, 12.0], [11.0, 14.0]], "; not told apart from it: b"),  # t = 3, one degree: p 0.2
        ([[10.0, 12.0], [40.0, 42.5]], ", clearly below b (p < 0.05)"),  # t = 121
        (
            [[10.0, 12.0], [40.0, 42.5], [10.0, 13.0]],
            ", clearly below b (p < 0.05); not told apart from it: c",
        ),
    ],
    ids=str,
)
def test_what_is_said_of_the_order(errors: list[list[float]], said: str) -> None:
    scores = [
        Score(Cell(row, "few"), [[error] for error in draws], seconds=1, steps=1)
        for row, draws in zip("abc", errors, strict=False)
    ]
    ceiling = Score(Cell("all labels", "few"), [[1.0] for _ in errors[0]], seconds=1, steps=1)
    compared = compute_scores({}, 1, [*scores, ceiling], references={"all labels"})
    assert describe_order(compared) == [f"few: a has the lowest error{said}."]


def test_what_one_draw_or_one_state_cannot_tell(runs: dict[Cell, list[Run]]) -> None:
    assert [score.deviations for score in compute_scores(runs, 1)] == [None] * 6
    one_draw = compute_scores(runs, 4)
    assert [score.deviations for score in one_draw] == [None] * 6
    assert [score.p_value for score in one_draw] == [None] * 6
    few = compute_scores(runs, 2)[0]
    # Draws (20, 24) and (22, 26): variance within 8, of the means 2 < 8/2.
    assert few.deviations == pytest.approx((0, 8**0.5))


def test_curves_go_by_steps_and_by_the_mean_time(runs: dict[Cell, list[Run]]) -> None:
    figures = draw_comparison(runs, "test")
    few, _ = figures["curves"].axes
    errors = drawn_lines(few)
    assert errors["a"] == ([10, 20], [33, 23])  # ten steps an epoch
    assert errors["b"] == ([10, 20], [26.75, 16.75])
    band = few.collections[0].get_paths()[0].vertices
    deviation = np.std(ERRORS[Cell("a", "few")], ddof=1)
    assert np.max(np.asarray(band)[:, 1]) == pytest.approx(33 + deviation)
    _, many = figures["time"].axes
    assert drawn_lines(many)["a"] == ([0.5, 1.0], [84.5, 94.5])  # made runs took a second
    assert "seconds" in figures["time"].get_supxlabel()


def test_a_method_may_be_missing_in_one_column(runs: dict[Cell, list[Run]]) -> None:
    figures = draw_comparison({c: of for c, of in runs.items() if c != Cell("a", "few")}, "test")
    for figure in figures.values():
        few, many = (drawn_lines(axes).keys() for axes in figure.axes)
        assert (few & {"a", "b", "c"}, many & {"a", "b", "c"}) == ({"b", "c"}, {"a", "b", "c"})
        (legend,) = figure.legends
        assert sorted(text.get_text() for text in legend.get_texts()) == ["a", "b", "c"]
        colors = [{d.get_label(): d.get_color() for d in axes.lines} for axes in figure.axes]
        assert colors[0]["b"] == colors[1]["b"]
