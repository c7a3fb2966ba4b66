"""Fig. 3: which sample is shown, and what is said of all the others."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dualstudent import Run
from dualstudent.experiments.figures import draw_figures
from dualstudent.experiments.figures.tracked import TrackedSamples
from dualstudent.experiments.schema import Cell
from tests.support.made_runs import drawn_lines, experiment, line, made_run, network

COLUMN = "CIFAR-10"
ROWS = [{"name": name, "panel": "two classes"} for name in ("MT", "DS")]
Curve = Sequence[Sequence[float]]  # epochs × samples


def dual_student(folder: Path, f1: Curve, f2: Curve, seed: int = 0) -> Run:
    test = {"student1": network(10), "student2": network(10)}
    metrics = [
        line(epoch, test, tracked={"student1": list(one), "student2": list(two)})
        for epoch, (one, two) in enumerate(zip(f1, f2, strict=True), start=1)
    ]
    return made_run(folder, metrics, f"seed={seed}")


def mean_teacher(folder: Path, fs: Curve, seed: int = 0) -> Run:
    test = {"student": network(10), "teacher": network(10)}
    metrics = [
        line(epoch, test, tracked={"student": list(one), "teacher": [1.0] * len(one)})
        for epoch, one in enumerate(fs, start=1)
    ]
    return made_run(folder, metrics, f"seed={seed}", "method.name=mean-teacher")


F1 = [[0.1, 0.2, 0.3, 0.9], [0.8, 0.9, 0.2, 0.1]]
F2 = [[0.4, 0.6, 0.4, 0.4], [0.7, 0.7, 0.7, 0.4]]
FS = [[0.1, 0.2, 0.3, 0.9], [0.4, 0.3, 0.6, 0.9]]


def draw(tmp_path: Path, f1: Curve, f2: Curve, fs: Curve) -> Figure:
    runs = {
        Cell("MT", COLUMN): [mean_teacher(tmp_path / "mt", fs, seed=3)],
        Cell("DS", COLUMN): [dual_student(tmp_path / "ds", f1, f2, seed=3)],
    }
    coupling = experiment("coupling", ROWS, columns=[{"name": COLUMN}])
    return draw_figures(coupling, runs)["correction"]


def lines(axes: Axes) -> dict[str, list[float]]:
    return {name[:2]: y for name, (_, y) in drawn_lines(axes).items() if name.startswith("f")}


def test_the_sample_on_which_they_differ_most_is_shown_beside_all(tmp_path: Path) -> None:
    figure = draw(tmp_path, F1, F2, FS)
    one, everything = figure.axes
    assert lines(one) == {"f₁": [0.2, 0.9], "f₂": [0.6, 0.7], "fₛ": [0.2, 0.3]}
    shares = lines(everything)  # of the samples 0, 1, 2
    assert shares["f₁"] == pytest.approx([0, 200 / 3])
    assert shares["f₂"] == pytest.approx([100 / 3, 100])
    assert shares["fₛ"] == pytest.approx([0, 100 / 3])
    said = str(figure.get_label())
    assert "test sample 1 of seed 3" in said
    assert "epoch 1 (1 seed, 4 samples each): f₁ 2 of 3, f₂ 2 of 3, fₛ 1 of 3." in said
    assert "f₁ 2 of 3" in " ".join(figure.get_supxlabel().split("\n"))


def test_it_is_said_if_there_is_no_such_sample(tmp_path: Path) -> None:
    figure = draw(tmp_path, F1, F2, [*FS[:-1], [1.0] * 4])  # what f₁ corrects, fₛ does, too
    rule = "No sample was wrong at first for f₁ and fₛ and right at the end for f₁ alone."
    assert rule in str(figure.get_label())
    one, everything = figure.axes
    assert lines(one) == {}
    assert lines(everything)["fₛ"] == [0, 100]


def test_nobody_wrong_at_first(tmp_path: Path) -> None:
    right = [[0.9, 0.9], [0.9, 0.9]]
    figure = draw(tmp_path, right, right, right)
    assert [text.get_text() for axes in figure.axes for text in axes.texts] == [
        "no such sample",
        "none was wrong",
    ]
    said = str(figure.get_label())
    assert "No sample was" in said
    assert "f₁ 0 of 0, f₂ 0 of 0, fₛ 0 of 0" in said


def test_runs_are_paired_by_seed_and_a_seed_without_its_pair_is_left_out(tmp_path: Path) -> None:
    runs = {
        Cell("MT", COLUMN): [mean_teacher(tmp_path / "mt1", FS, seed=1)],
        Cell("DS", COLUMN): [
            dual_student(tmp_path / "ds0", F2, F1, seed=0),
            dual_student(tmp_path / "ds1", F1, F2, seed=1),
        ],
    }
    coupling = experiment("coupling", ROWS, columns=[{"name": COLUMN}])
    said = str(draw_figures(coupling, runs)["correction"].get_label())
    assert "test sample 1 of seed 1" in said
    assert "1 seed, 4 samples each" in said
    assert draw_figures(coupling, runs | {Cell("MT", COLUMN): []}) == {}


probabilities = st.lists(
    st.tuples(*[st.sampled_from([0.0, 0.25, 0.49, 0.5, 0.75, 1.0])] * 6), min_size=1, max_size=8
)


@given(probabilities)
def test_the_rule_sample_by_sample(samples: list[tuple[float, ...]]) -> None:
    """Each sample: f₁, f₂, fₛ at the first and at the last epoch."""
    table = np.array(samples).T
    values = {"f₁": table[[0, 3]], "f₂": table[[1, 4]], "fₛ": table[[2, 5]]}
    tracked = TrackedSamples(seed=0, epochs=[1, 2], probabilities=values)
    best, gap = None, -1.0
    for number, (f1, _, fs, f1_end, _, fs_end) in enumerate(samples):
        fits = f1 < 0.5 and fs < 0.5 and f1_end >= 0.5 and fs_end < 0.5
        if fits and f1_end - fs_end > gap:
            best, gap = number, f1_end - fs_end
    assert tracked.find_example() == best
    right = sum(1 for s in samples if s[2] < 0.5 <= s[5])
    assert tracked.count_corrected("fₛ") == (right, sum(1 for s in samples if s[2] < 0.5))
