"""The plan of a comparison: recipes, seeds, lengths, and what is refused."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from dualstudent import PreparedData, UserError, load_recipe, prepare, train
from dualstudent.data.images.cache import decode_images
from dualstudent.data.images.check import check_images
from dualstudent.errors import RunsFailed
from dualstudent.experiments import lengths
from dualstudent.experiments.compare import run_comparison
from dualstudent.experiments.comparison import plan_comparison
from dualstudent.experiments.request import ComparisonRequest
from dualstudent.experiments.rows import make_ceiling
from dualstudent.experiments.schema import Cell
from dualstudent.recipes.own_images import (
    complete_recipe,
    find_shares,
    locate_images,
    validate_request,
)
from dualstudent.recipes.schema import Recipe
from tests.support.csv_rows import rows_of
from tests.support.digit_files import write_digits
from tests.support.html_page import Page
from tests.support.made_runs import line, made_run, network
from tests.support.mirrored import write_lights
from tests.support.recipes import SMALL, small_recipe

SMALL_DEMO = (*SMALL, "network.widths=[8, 16]", "transforms.strong.translate=2")
REQUEST = ComparisonRequest(
    ("dual-student", "supervised"), "digits", labels=(50, 100), seeds=2, changes=SMALL
)


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DUALSTUDENT_CACHE", str(tmp_path / "cache"))


def test_runs_differ_in_method_labels_and_seeds_only() -> None:
    runs = plan_comparison(dataclasses.replace(REQUEST, initial_states=2)).runs()
    assert len(runs) == 2 * 2 * 2 * 2
    seeds = {(r.data.split_seed, r.seed) for r in runs.values()}
    assert seeds == {(0, 0), (0, 1000), (1, 1), (1, 1001)}
    for name, recipe in runs.items():
        own = [f"method.name={recipe.method.name}", f"data.labels={recipe.data.labels}"]
        seeded = [f"seed={recipe.seed}", f"data.split_seed={recipe.data.split_seed}"]
        assert recipe == small_recipe(*own, *seeded), name
    # The recipe's own method keeps what the recipe says of it.
    assert runs["dual-student-50-draw0-state0"].method == load_recipe("digits").method


def test_all_methods_and_states_of_a_draw_see_the_same_labels() -> None:
    request = dataclasses.replace(REQUEST, labels=(50,), initial_states=2)
    labels: dict[int | None, list[torch.Tensor]] = {}
    for recipe in plan_comparison(request).runs().values():
        chosen = prepare(recipe.data, recipe.seed).labeled
        labels.setdefault(recipe.data.split_seed, []).append(chosen)
    for of_draw in labels.values():
        assert len(of_draw) == 4
        assert all(torch.equal(each, of_draw[0]) for each in of_draw)
    assert not torch.equal(labels[0][0], labels[1][0])


def test_the_labels_of_the_recipe_are_the_default() -> None:
    comparison = plan_comparison(dataclasses.replace(REQUEST, labels=()))
    assert {cell.column for cell in comparison.recipes} == {"50 labels"}


def test_settings_of_a_method_go_to_those_that_have_them() -> None:
    change = "method.classification_average=batch"
    comparison = plan_comparison(dataclasses.replace(REQUEST, changes=(*SMALL, change)))
    method = comparison.recipes[Cell("dual-student", "50 labels")].method.model_dump()
    assert method["classification_average"] == "batch"
    (remark,) = comparison.remarks
    assert remark.startswith(f"{change} is set for dual-student;")


def test_all_methods_average_the_cross_entropy_as_the_method_of_the_recipe_does() -> None:
    small = ("data.source=digits-8x8", "data.images=200", "network.widths=[8, 16]")
    request = ComparisonRequest(
        ("fixmatch", "mean-teacher"), "few-labels", labels=(50,), seeds=1, changes=small
    )
    recipes = plan_comparison(request).recipes.values()
    averages = [recipe.method.model_dump()["classification_average"] for recipe in recipes]
    assert averages == ["labeled", "labeled"]


def test_methods_that_average_the_cross_entropy_differently_are_a_remark() -> None:
    supervised = dataclasses.replace(REQUEST, recipe="demo-supervised", changes=SMALL_DEMO, seeds=1)
    different = dataclasses.replace(supervised, methods=("dual-student", "supervised", "fixmatch"))
    (remark,) = [each for each in plan_comparison(different).remarks if "averaged" in each]
    assert "over the batch for dual-student, over its labeled samples for fixmatch;" in remark
    alike = (*SMALL_DEMO, "method.classification_average=labeled")
    remarks = plan_comparison(dataclasses.replace(different, changes=alike)).remarks
    assert not any("averaged" in each for each in remarks)


@pytest.mark.parametrize(("kept", "view"), [(0, "weak"), (2, "strong")])
def test_the_ceiling_learns_from_the_views_that_are_kept_of_a_trunk(kept: int, view: str) -> None:
    heads = ("trunk.name=efficientnet-lite0", "network.name=mlp", f"trunk.strong_views={kept}")
    ceiling = make_ceiling(load_recipe("compare", [*heads, "method.name=dual-student"]))
    assert f"method.view={view}" in ceiling.changes


def test_a_row_may_have_settings_of_its_own_and_then_a_folder_of_its_own() -> None:
    rows = ("dual-student", "dual-student:stabilization_weight=7:label_smoothing=0.1", "supervised")
    shared = "method.label_smoothing=0.2"
    request = dataclasses.replace(
        REQUEST, methods=rows, labels=(50,), seeds=1, changes=(*SMALL, shared)
    )
    comparison = plan_comparison(request)
    recipes = [comparison.recipes[Cell(row, "50 labels")].method.model_dump() for row in rows]
    assert [method["label_smoothing"] for method in recipes] == [0.2, 0.1, 0.2]
    assert [m["stabilization_weight"] for m in recipes[:2]] == [100, 7]
    assert list(comparison.runs()) == [
        "dual-student-50-draw0-state0",
        "dual-student,stabilization_weight=7,label_smoothing=0.1-50-draw0-state0",
        "supervised-50-draw0-state0",
    ]
    strange = plan_comparison(dataclasses.replace(request, methods=("supervised:view='weak'",)))
    assert list(strange.runs()) == ["supervised,view=%27weak%27-50-draw0-state0"]


def test_the_ceiling_learns_from_all_labels_in_about_the_same_steps() -> None:
    strong = "transforms.strong.translate=2"
    request = dataclasses.replace(
        REQUEST, seeds=1, ceiling=True, changes=(*SMALL, "schedule.epochs=9", strong)
    )
    comparison = plan_comparison(request)
    few, more = (comparison.recipes[Cell("all labels", f"{n} labels")] for n in (50, 100))
    assert few == more
    assert (few.method.name, few.method.model_dump()["view"]) == ("supervised", "strong")
    data = prepare(few.data, few.seed)
    assert data.fully_labeled
    # Unlabeled samples in batches of 64 − 16, against all in whole batches of 64.
    steps = -(-(len(data.train) - 50) // 48), len(data.train) // 64
    assert few.epochs == round(9 * steps[0] / steps[1]) > 9
    assert len(comparison.runs()) == 5  # both columns share the run with all labels
    assert not comparison.remarks[1:]  # nothing but that one seed has no spread
    weak = plan_comparison(dataclasses.replace(request, changes=SMALL))
    assert weak.recipes[Cell("all labels", "50 labels")].method.model_dump()["view"] == "weak"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": ("dual-studnet",)}, r"'dual-studnet'; did you mean 'dual-student'"),
        ({"methods": ()}, "--methods"),
        ({"methods": ("pi:fast",)}, "pi:fast: write settings of a method as METHOD:key=value"),
        ({"methods": ("pi:name=vat",)}, "METHOD:key=value"),
        ({"methods": ("supervised:veiw=weak",)}, "did you mean 'method.view'"),
        ({"recipe": None}, "recipe .*or --data"),
        ({"data": Path("digits")}, "either a recipe"),
        ({"seeds": 0}, "--seeds 0"),
        ({"initial_states": 0}, "--initial-states 0"),
        ({"labels": (55,)}, r"data\.labels = 55 .* multiple of 10"),
        ({"labels": (9000,)}, r"data\.labels = 9000 .* but digits-8x8 train has"),
        ({"labels": ("lots",)}, r"data\.labels = 'lots'"),
        ({"changes": ("seed=1",)}, "--seeds"),
        ({"changes": ("data.labels=50",)}, "--labels"),
        ({"changes": ("method.name=vat",)}, "--methods"),
        ({"changes": ("method.confidence_treshold=0.5",)}, "did you mean 'method.confidence_thr"),
        ({"changes": ("data.split=split.json",)}, r"data\.split"),
        ({"methods": ("pi:decay=0.9",)}, r"method\.decay = 0\.9: .*mean-teacher'"),
        ({"changes": ("batch.labeled=128",)}, r"dual-student, 50 labels: batch\.labeled = 128"),
        (
            {"methods": ("supervised", "pi+fastswa")},
            r"pi\+fastswa, 50 labels: method\.average_from",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line_before_anything_starts(
    change: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError, match=message) as refusal:
        plan_comparison(dataclasses.replace(REQUEST, **change))  # type: ignore[arg-type]
    assert "\n" not in str(refusal.value)
    assert not Path("runs").exists()


def test_a_single_seed_is_told_to_have_no_intervals() -> None:
    (remark,) = plan_comparison(dataclasses.replace(REQUEST, seeds=1)).remarks
    assert "no intervals" in remark


def test_a_folder_is_for_one_comparison_to_which_can_be_added() -> None:
    plan_comparison(REQUEST).save()
    more = {"methods": ("pi",), "labels": (20,), "seeds": 3}
    plan_comparison(dataclasses.replace(REQUEST, **more)).save()  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"runs/compare/digits .* differs in set; choose another"):
        plan_comparison(dataclasses.replace(REQUEST, changes=(*SMALL, "batch.size=32")))
    (Path("full") / "of").mkdir(parents=True)
    with pytest.raises(UserError, match="no comparison"):
        plan_comparison(dataclasses.replace(REQUEST, out=Path("full")))


def test_with_equal_time_lengths_are_set_once_by_the_ratio_of_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured = []

    def estimate(recipe: Recipe, data: object) -> float:
        assert torch.get_num_threads() == 1
        measured.append(recipe.method.name)
        disturbed = 5.0 if measured.count(recipe.method.name) == 2 else 1.0  # the second time
        times = {"dual-student": 30.0, "supervised": 8.0, "pi": 70.0}
        return disturbed * times[recipe.method.name]

    monkeypatch.setattr(lengths, "estimate_seconds", estimate)
    request = dataclasses.replace(REQUEST, labels=(50,), equal="time")
    comparison = plan_comparison(request)
    epochs = {cell.row: recipe.schedule for cell, recipe in comparison.recipes.items()}
    assert epochs["dual-student"].epochs == 2
    assert epochs["supervised"].epochs == 8  # 2 · 30/8
    assert epochs["supervised"].rampup_epochs == 4
    assert measured == ["dual-student", "supervised"] * 3  # in turns

    comparison.save()
    assert plan_comparison(request).recipes == comparison.recipes
    assert len(measured) == 6  # not measured again
    more = plan_comparison(dataclasses.replace(request, methods=(*request.methods, "pi")))
    assert more.recipes[Cell("pi", "50 labels")].epochs == 1
    # 8 epochs of supervised take 32 s; one of pi takes 35 s, 17 % more than the 30 s of the first.
    (remark,) = more.remarks
    assert remark.startswith("pi, 50 labels takes about 35.0 s in 1 epoch, not the 30.0 s that")
    assert not comparison.remarks
    more.save()
    again = plan_comparison(dataclasses.replace(request, methods=(*request.methods, "pi")))
    assert again.remarks == more.remarks
    assert len(measured) == 12
    assert measured[6:] == ["dual-student", "pi"] * 3
    with pytest.raises(UserError, match="first method"):
        plan_comparison(dataclasses.replace(request, methods=("pi", "dual-student")))

    file = Path("runs/compare/digits/comparison.json")  # as an earlier version wrote it
    kept = json.loads(file.read_text())
    del kept["seconds"]
    file.write_text(json.dumps(kept))
    earlier = plan_comparison(dataclasses.replace(request, methods=(*request.methods, "pi")))
    assert (earlier.recipes, earlier.remarks) == (again.recipes, [])


@pytest.mark.parametrize("seconds", [[1.0], ["1", "2"], "12", 3.0, [1.0, float("nan")]])
def test_malformed_times_of_a_comparison_are_refused(seconds: object) -> None:
    request = dataclasses.replace(REQUEST, labels=(50,))
    plan_comparison(request).save()
    file = Path("runs/compare/digits/comparison.json")
    wrong = {"epochs": {"pi, 50 labels": 2}, "seconds": {"pi, 50 labels": seconds}}
    file.write_text(json.dumps(json.loads(file.read_text()) | wrong))
    with pytest.raises(UserError, match=r"comparison\.json: cannot be read"):
        plan_comparison(request)


def test_own_images_get_a_chosen_recipe_and_hidden_labels(tmp_path: Path) -> None:
    digits = write_digits(tmp_path / "digits", labeled=6, unlabeled=100, test=20)
    request = dataclasses.replace(
        REQUEST, recipe=None, data=digits, labels=(20, 60), changes=("schedule.epochs=1",)
    )
    recipes = plan_comparison(request).recipes
    for cell, (labeled, unlabeled) in {"20": (20, 140), "60": (60, 100)}.items():
        recipe = recipes[Cell("supervised", f"{cell} labels")]
        assert recipe.network.name == "whitened-cnn"
        data = prepare(recipe.data, seed=0)
        assert (len(data.labeled), len(data.unlabeled)) == (labeled, unlabeled)
    dual_student = recipes[Cell("dual-student", "60 labels")].method.model_dump()
    assert dual_student["stabilization_weight"] == 100  # the chooser's
    ceiling = dataclasses.replace(request, ceiling=True)
    all_labels = plan_comparison(ceiling).recipes[Cell("all labels", "20 labels")]
    assert len(prepare(all_labels.data, seed=0).labeled) == 60
    with pytest.raises(UserError, match=r"--ceiling: .*add --labels"):
        plan_comparison(dataclasses.replace(ceiling, labels=()))
    with pytest.raises(UserError, match=r"data\.labels = 70 .*7 .* has 6"):
        plan_comparison(dataclasses.replace(request, labels=(70,)))


@pytest.mark.parametrize(("labels", "flips"), [((20,), True), ((18, 20), False), ((), True)])
def test_hidden_labels_do_not_decide_about_flips(
    tmp_path: Path, labels: tuple[int, ...], flips: bool
) -> None:
    """It takes ten labels a class; all columns have the same views."""
    lights = write_lights(tmp_path / "lights", 20)
    write_lights(lights / "test", 4)
    request = ComparisonRequest(("supervised",), data=lights, labels=labels)
    recipes = plan_comparison(dataclasses.replace(request, changes=("schedule.epochs=1",))).recipes
    assert [r.transforms.weak.flip for r in recipes.values()] == [flips] * len(recipes)


def test_hidden_labels_do_not_choose_a_trunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def count(pixels: torch.Tensor, labels: torch.Tensor, *_: object) -> None:
        tried.append(labels.bincount().tolist())

    monkeypatch.setattr("dualstudent.training.trunk_choice.try_trunk", count)
    lights = write_lights(tmp_path / "lights", 20)
    write_lights(lights / "test", 4)
    changes = ("schedule.epochs=1", "data.image_size=32")  # a trunk needs so many pixels
    request = ComparisonRequest(("supervised",), data=lights, changes=changes)
    for labels, known in (((), 20), ((8, 6), 3), (("25%", 20), 5)):
        plan_comparison(dataclasses.replace(request, labels=labels))
        assert tried.pop() == [known, known]
    with pytest.raises(UserError, match=r"data\.labels = '4%' of 40 images .* the 2 classes"):
        plan_comparison(dataclasses.replace(request, labels=("4%",)))


def test_changed_images_are_refused_before_anything_is_trained(tmp_path: Path) -> None:
    digits = write_digits(tmp_path / "digits", labeled=4, unlabeled=40, test=20)
    short = ("schedule.epochs=1",)
    request = ComparisonRequest(
        ("supervised",), data=digits, labels=(20,), seeds=1, changes=short, out=tmp_path / "out"
    )
    comparison = plan_comparison(request)
    comparison.save()
    ((name, recipe),) = comparison.runs().items()
    train(recipe, request.runs_folder / name)
    image = next((digits / "test" / "7").iterdir())
    image.rename(digits / "test" / "8" / image.name)  # a corrected label
    again = plan_comparison(dataclasses.replace(request, seeds=2))
    with pytest.raises(UserError, match=rf"{name}: the images or labels .* \(--out\)"):
        run_comparison(again)
    assert [folder.name for folder in request.runs_folder.iterdir()] == [name]


def test_each_method_gets_what_is_chosen_for_it_from_own_images(tmp_path: Path) -> None:
    digits = write_digits(tmp_path / "digits", labeled=10, unlabeled=150, test=20)
    methods, changes = ("fixmatch", "dual-student", "supervised"), ("schedule.epochs=1",)
    comparison = plan_comparison(ComparisonRequest(methods, data=digits, changes=changes))
    assert any("that suit it" in remark for remark in comparison.remarks)
    recipes = {cell.row: recipe for cell, recipe in comparison.recipes.items()}
    for name, recipe in recipes.items():
        wanted = ("schedule.epochs=1", "data.labels=all", f"method.name={name}")
        asked = validate_request(locate_images(digits), wanted)
        images = decode_images(asked.data.list_images(), 16, 1)
        shares, found = find_shares(asked, images, wanted), check_images(images)
        assert recipe == complete_recipe(asked, found, wanted, shares=shares)[0]
    assert recipes["fixmatch"].method.model_dump()["distribution_alignment"]
    dual_student, others = recipes["dual-student"], (recipes["fixmatch"], recipes["supervised"])
    assert dual_student.method.confidence_threshold == 0.6
    assert dual_student.optimizer.learning_rate == 0.1
    assert {each.method.confidence_threshold for each in others} == {0.8}
    assert {each.optimizer.learning_rate for each in others} == {0.2}
    assert [any(r.transforms.weak.affine) for r in recipes.values()] == [False, True, True]
    shared = [(r.data, r.network, r.batch, r.schedule, r.device) for r in recipes.values()]
    assert shared[0] == shared[1] == shared[2]


def test_time_is_measured_with_the_views_of_each_method(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digits = write_digits(tmp_path / "digits", labeled=6, unlabeled=100, test=20)

    def estimate(recipe: Recipe, data: PreparedData) -> float:
        assert data.origin is not None
        assert data.origin.transforms == recipe.transforms
        return 1.0

    monkeypatch.setattr(lengths, "estimate_seconds", estimate)
    request = ComparisonRequest(
        ("fixmatch", "supervised"), data=digits, equal="time", changes=("schedule.epochs=1",)
    )
    views = [recipe.transforms for recipe in plan_comparison(request).recipes.values()]
    assert views[0] != views[1]


def test_own_images_without_any_to_evaluate_on_cannot_be_compared(tmp_path: Path) -> None:
    digits = write_digits(tmp_path / "digits", labeled=6, unlabeled=100, test=0)
    request = dataclasses.replace(REQUEST, recipe=None, data=digits, labels=(), changes=())
    with pytest.raises(UserError, match="digits has no test part"):
        plan_comparison(request)


def test_a_method_that_fails_with_few_labels_only_is_shown_with_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    comparison = plan_comparison(dataclasses.replace(REQUEST, seeds=1))
    failing = "dual-student-50-draw0-state0"

    def train(recipes: Mapping[str, Recipe], folder: Path, *_: object, **__: object) -> None:
        for name in recipes.keys() - {failing}:
            method, labels = name.removesuffix("-draw0-state0").rsplit("-", 1)
            changes = (*SMALL, f"method.name={method}", f"data.labels={labels}")
            made_run(folder / name, [line(1, {"student": network(9.0)})], *changes)
        raise RunsFailed(f"{failing}: diverged")

    monkeypatch.setattr("dualstudent.experiments.compare.run_grid", train)
    with pytest.raises(UserError, match="the methods without a failure are in runs/compare/digits"):
        run_comparison(comparison)
    out = Path("runs/compare/digits")
    shown = {(row["method"], row["labels"]) for row in rows_of(out / "runs.csv")}
    assert shown == {("supervised", "50"), ("dual-student", "100"), ("supervised", "100")}
    page = Page((out / "index.html").read_text("utf-8"))
    (note,) = (text for text in page.texts["p"] if text.startswith("Not shown, as runs failed"))
    assert note == "Not shown, as runs failed: dual-student, 50 labels."
