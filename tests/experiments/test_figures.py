"""What is drawn is what was measured: values are read back from the pictures."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from dualstudent import Run, train
from dualstudent.data.sources.bundled import load_digits_8x8, load_mnist_5k
from dualstudent.errors import DataWarning
from dualstudent.experiments.figures import draw_figures
from dualstudent.experiments.schema import Cell
from dualstudent.report.style import render_svg, save_picture
from tests.support.made_runs import drawn_lines, experiment, line, made_run, network
from tests.support.recipes import small_recipe

COLUMN = "1k labels"
ADAPTING = (
    "data.source=digits-8x8",
    "data.target=mnist-5k",
    "data.labels=all",
    "data.image_size=28",
)


def bar_values(axes: Axes) -> list[tuple[float, float, float]]:
    """(center, length, top) of upright bars."""
    bars = [cast(Rectangle, patch) for patch in axes.patches]
    return [(bar.get_x() + bar.get_width() / 2, bar.get_width(), bar.get_height()) for bar in bars]


def students(*errors: float) -> dict[str, dict[str, Any]]:
    return {f"student{i}": network(error) for i, error in enumerate(errors, start=1)}


def two_seeds(folder: Path, *changes: str) -> list[Run]:
    """Errors of the mean over two students: 50, not evaluated, 20; and 54, not evaluated, 30."""
    return [
        made_run(
            folder / str(seed),
            [line(1, students(*first)), line(2, {}), line(3, students(*last))],
            f"seed={seed}",
            *changes,
        )
        for seed, (first, last) in enumerate([((40, 60), (10, 30)), ((50, 58), (20, 40))])
    ]


def only_figure(figures: Mapping[str, Figure], name: str) -> Figure:
    assert list(figures) == [name]
    return figures[name]


def test_accuracy_is_the_mean_over_networks_and_seeds_of_evaluated_epochs(tmp_path: Path) -> None:
    adaptation = experiment("adaptation", [{"name": "DS", "paper": ["91.50"]}], measure="accuracy")
    figure = only_figure(
        draw_figures(adaptation, {Cell("DS", COLUMN): two_seeds(tmp_path)}), "adaptation"
    )
    axes = figure.axes[0]
    epochs, means = drawn_lines(axes)["DS"]
    assert epochs == [1, 3]
    assert means == pytest.approx([48, 75])
    band = cast(PolyCollection, axes.collections[0]).get_paths()[0].vertices
    deviations = [2 * 2**0.5, 5 * 2**0.5]
    edges = [48 - deviations[0], 48 + deviations[0], 75 - deviations[1], 75 + deviations[1]]
    assert sorted(set(np.round(np.asarray(band)[:, 1], 6))) == pytest.approx(sorted(edges), 1e-6)
    marks = [drawn for drawn in axes.lines if drawn.get_marker() == "D"]
    assert [list(mark.get_ydata()) for mark in marks] == [[91.5]]  # type: ignore[arg-type]
    assert axes.get_ylim()[1] > 91.5
    assert f"DS 75.00 ± {deviations[1]:.2f} (paper ◇ 91.50)" in str(figure.get_label())


def test_the_result_of_mean_teacher_is_its_teachers(tmp_path: Path) -> None:
    test = {"student": network(90), "teacher": network(25)}
    run = made_run(
        tmp_path / "0", [line(1, test)], "method.name=mean-teacher", headline=["teacher"]
    )
    rows = experiment("adaptation", [{"name": "MT", "paper": ["20.00"]}])  # an error
    figure = draw_figures(rows, {Cell("MT", COLUMN): [run]})["adaptation"]
    axes = figure.axes[0]
    assert drawn_lines(axes)["MT"] == ([1], [75])
    assert not axes.collections  # one seed has no spread
    assert drawn_lines(axes)["_child0"][1] == [80]


def test_ablation_has_a_picture_for_each_panel_and_a_color_for_each_row(tmp_path: Path) -> None:
    rows = {
        "MT": ("with MT", "method.name=mean-teacher"),
        "DS": ("with MT", "method.name=dual-student"),
        "con": ("constraints", "method.stabilization_weight=0"),
        "sta": ("constraints", "method.consistency_weight=0"),
        "con + sta": ("constraints", "method.name=dual-student"),
    }
    ablation = experiment("ablation", [{"name": n, "panel": p} for n, (p, _) in rows.items()])
    runs = {Cell(n, COLUMN): two_seeds(tmp_path / n, change) for n, (_, change) in rows.items()}
    figures = draw_figures(ablation, runs | {Cell("MT", COLUMN): []})
    left, right = (figures[f"ablation-{side}"].axes[0] for side in ("left", "right"))
    assert drawn_lines(left).keys() == {"DS"}
    assert drawn_lines(right).keys() == {"con", "sta", "con + sta"}
    colors = {str(d.get_label()).split("\n")[0]: d.get_color() for d in (*left.lines, *right.lines)}
    assert colors["con + sta"] == colors["DS"]
    assert len({colors["con"], colors["sta"], colors["DS"]}) == 3


@pytest.mark.parametrize(("far", "scale"), [(3.0, "linear"), (300.0, "log")])
def test_distances_of_weights_and_predictions(tmp_path: Path, far: float, scale: str) -> None:
    def runs(name: str, pair: str, distance: float) -> list[Run]:
        values = {"weights": distance, "predictions": 2.0}
        record = line(1, students(10, 10), distances={pair: values})
        last = line(3, students(10, 10), distances={pair: {"weights": 1.0, "predictions": 0.5}})
        return [made_run(tmp_path / name, [record, line(2, {}), last])]

    rows = [{"name": name, "panel": "distance"} for name in ("S_ema", "S_split")]
    found = {
        Cell("S_ema", COLUMN): runs("ema", "student-teacher", 1.5),
        Cell("S_split", COLUMN): runs("split", "student1-student2", far),
    }
    figure = only_figure(draw_figures(experiment("coupling", rows), found), "distance")
    weights, predictions = figure.axes
    assert drawn_lines(weights) == {"S_ema": ([1, 3], [1.5, 1]), "S_split": ([1, 3], [far, 1])}
    assert drawn_lines(predictions)["S_split"] == ([1, 3], [2, 0.5])
    assert weights.get_yscale() == scale
    assert predictions.get_yscale() == "linear"
    assert predictions.get_ylim()[0] == 0


def per_class(stable: Sequence[float | None], everything: Sequence[float]) -> dict[str, Any]:
    return network(
        10, stable_share=70.0, stable_class_accuracy=list(stable), class_accuracy=list(everything)
    )


def test_stable_samples_per_class(tmp_path: Path) -> None:
    first = {"student1": per_class([90, None, None], [60, 70, 5])}
    first["student2"] = per_class([80, 50, None], [40, 70, 5])
    second = {"student1": per_class([95, None, None], [70, 70, 5])}
    second["student2"] = per_class([95, None, None], [70, 70, 5])
    runs = [
        made_run(tmp_path / str(seed), [line(1, test)], classes=["cat", "dog", "<b>$"])
        for seed, test in enumerate((first, second))
    ]
    rows = experiment("stable-samples", [{"name": "DS"}])
    figure = only_figure(draw_figures(rows, {Cell("DS", COLUMN): runs}), "stable-samples")
    axes = figure.axes[0]
    heights = {round(center, 3): top for center, _, top in bar_values(axes)}
    assert heights == {-0.2: 90.0, 0.8: 50.0, 0.2: 60.0, 1.2: 70.0, 2.2: 5.0}
    assert [t.get_text() for t in axes.get_xticklabels()] == ["cat", "dog", r"<b>\$"]
    assert "70.00 ± 0.00 % are stable (paper: about 85 %)" in axes.get_title(loc="left")
    render_svg(figure)  # the $ of a name is no formula

    runs[0].split.unlink()
    figure = draw_figures(rows, {Cell("DS", COLUMN): runs})["stable-samples"]
    assert figure.axes[0].get_xticklabels()[0].get_text() == "class 0"


def test_bars_show_paper_and_measured_values_of_each_column(tmp_path: Path) -> None:
    rows = [
        {"name": "MT", "paper": ["18.78 ± 0.31 †", "–"]},
        {"name": "DS", "paper": ["15.74", "3.00"]},
        {"name": "CT", "paper": ["–", "–"]},
    ]
    table = experiment(
        "bars", rows, columns=[{"name": "top-1"}, {"name": "top-5", "measure": "top5_error"}]
    )
    record = line(1, {"student": network(20, top5_error=4), "teacher": network(12, top5_error=2)})
    mean_teacher = made_run(
        tmp_path / "mt", [record], "method.name=mean-teacher", headline=["teacher"]
    )
    runs: dict[Cell, list[Run]] = {
        Cell("MT", "top-1"): [mean_teacher],
        Cell("DS", "top-1"): two_seeds(tmp_path / "ds"),
        Cell("MT", "top-5"): [mean_teacher],
        Cell("DS", "top-5"): [],
        Cell("CT", "top-5"): [mean_teacher],
    }
    figure = only_figure(draw_figures(table, runs), "bars")
    top1, top5 = figure.axes
    widths = [cast(Rectangle, patch).get_width() for patch in top1.patches]
    assert widths == pytest.approx([18.78, 12, 15.74, 25])
    assert [to_rgba(patch.get_facecolor())[3] for patch in top1.patches] == [
        0,
        1,
        0,
        1,
    ]  # hollow, filled
    dots = [list(drawn.get_xdata()) for drawn in top1.lines if drawn.get_marker() == "o"]  # type: ignore[arg-type]
    assert dots == [[12], [20, 30]]
    assert [cast(Rectangle, patch).get_width() for patch in top5.patches] == [2, 3, 2]
    assert [text.get_text().strip() for text in top5.texts] == ["not run"]
    assert not top1.texts  # what was not to be run is not missing
    assert [tick.get_text() for tick in top1.get_yticklabels()] == ["MT", "DS", "CT"]
    assert "for top-1, top-5. The numbers are in the table." in str(figure.get_label())


def test_bars_without_values_beside_them_have_none_in_the_legend(tmp_path: Path) -> None:
    made = two_seeds(tmp_path)
    legends = {}
    for values in (["15.74"], ["–"]):
        table = experiment("bars", [{"name": "DS", "paper": values}])
        figure = draw_figures(table, {Cell("DS", COLUMN): made})["bars"]
        (legend,) = figure.legends
        legends[values[0]] = [text.get_text().split(",")[0] for text in legend.get_texts()]
        assert ("paper" in str(figure.get_label())) == (values != ["–"])
    assert legends == {"15.74": ["paper", "measured"], "–": ["measured"]}


def test_bars_compare_what_a_table_has_more_of(tmp_path: Path) -> None:
    columns = [{"name": name} for name in ("ξ = 0.0", "ξ = 0.4", "ξ = 0.8")]
    table = experiment(
        "bars", [{"name": "CIFAR-10", "paper": ["16.49", "16.12", "–"]}], columns=columns
    )
    runs = {Cell("CIFAR-10", c["name"]): two_seeds(tmp_path / c["name"]) for c in columns[1:]}
    (axes,) = draw_figures(table, runs)["bars"].axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["ξ = 0.4", "ξ = 0.8"]
    assert [cast(Rectangle, patch).get_width() for patch in axes.patches] == [16.12, 25, 25]
    assert axes.get_title(loc="left") == "CIFAR-10: test error in %"


def test_domains_show_the_first_image_of_each_class_as_trained(tmp_path: Path) -> None:
    run = made_run(tmp_path / "0", [line(1, students(10, 10))], *ADAPTING)
    rows = experiment("adaptation", [{"name": "DS"}])
    figure = draw_figures(rows, {Cell("DS", COLUMN): [run]})["domains"]
    shown = [np.asarray(axes.images[0].get_array()) for axes in figure.axes]
    expected = [
        images.resize(28).pixels[int((images.labels == digit).nonzero()[0, 0]), 0].numpy()
        for images in (load_digits_8x8("train", tmp_path), load_mnist_5k("train", tmp_path))
        for digit in range(10)
    ]
    np.testing.assert_array_equal(shown, expected)


def test_domains_without_their_files_are_left_out_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / "data" / "usps").mkdir(parents=True)
    (tmp_path / "data" / "usps" / "usps.bz2").write_bytes(b"half a download")
    changes = ("data.source=usps", "data.target=mnist", f"data.folder={tmp_path / 'data'}")
    runs = two_seeds(tmp_path, "data.labels=all", *changes)
    rows = experiment("adaptation", [{"name": "DS"}])
    with pytest.warns(DataWarning, match=r"usps\.bz2"):
        assert draw_figures(rows, {Cell("DS", COLUMN): runs}).keys() == {"adaptation"}


def test_nothing_run_draws_nothing(tmp_path: Path) -> None:
    for name in ("bars", "coupling", "stable-samples", "adaptation"):
        rows = experiment(name, [{"name": "DS", "panel": "distance"}])
        assert draw_figures(rows, {Cell("DS", COLUMN): []}) == {}


def test_equal_runs_give_equal_bytes_and_svg_with_real_text(tmp_path: Path) -> None:
    rows = experiment("adaptation", [{"name": "<&\"'$ DS"}])
    runs = {Cell("<&\"'$ DS", COLUMN): two_seeds(tmp_path / "runs", *ADAPTING)}
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        for name, figure in draw_figures(rows, runs).items():
            save_picture(figure, folder / name)
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert files == ["adaptation.png", "adaptation.svg", "domains.png", "domains.svg"]
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    svg = (tmp_path / "a" / "adaptation.svg").read_text("utf-8")
    texts = [
        "".join(text.itertext()) for text in ET.fromstring(svg).iter() if text.tag.endswith("text")
    ]
    assert "<&\"'$ DS" in texts
    assert not re.search(r"<dc:date>|\d{4}-\d{2}-\d{2}T", svg)


def test_real_runs_are_drawn(tmp_path: Path) -> None:
    watched = ('data.classes=["3", "8"]', "evaluation.track=40")
    pair = train(small_recipe(*watched), tmp_path / "ds")
    single = train(small_recipe(*watched, "method.name=mean-teacher"), tmp_path / "mt")
    names = {"S_ema": (single, "distance"), "S_split": (pair, "distance")}
    names |= {"MT": (single, "two classes"), "DS": (pair, "two classes")}
    coupling = experiment("coupling", [{"name": n, "panel": p} for n, (_, p) in names.items()])
    figures = draw_figures(coupling, {Cell(n, COLUMN): [run] for n, (run, _) in names.items()})
    weights, predictions = (drawn_lines(axes) for axes in figures["distance"].axes)
    last = pair.read_metrics()[-1]["distances"]["student1-student2"]
    assert weights["S_split"][1][-1] == last["weights"]
    assert predictions["S_split"][1][-1] == last["predictions"]
    assert "1 seed, 40 samples each" in str(figures["correction"].get_label())

    result = pair.read_result()
    accuracy = experiment("adaptation", [{"name": "DS"}])
    figures = draw_figures(accuracy, {Cell("DS", COLUMN): [pair]})
    means = drawn_lines(figures["adaptation"].axes[0])["DS"][1]
    assert means[-1] == pytest.approx(100 - result["error"])
    stable = experiment("stable-samples", [{"name": "DS"}])
    axes = draw_figures(stable, {Cell("DS", COLUMN): [pair]})["stable-samples"].axes[0]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["3", "8"]
    threes = [result["networks"][name]["class_accuracy"][0] for name in result["headline"]]
    assert bar_values(axes)[2][2] == pytest.approx(np.mean(threes))
