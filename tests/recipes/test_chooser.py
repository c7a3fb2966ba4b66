"""The choice of a recipe from facts about images."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from dualstudent import DualStudentClassifier, Transform, prepare_arrays
from dualstudent.estimator.recipe import build_recipe
from dualstudent.methods import METHODS, FixMatchSettings
from dualstudent.networks.build import build_network
from dualstudent.networks.quick_cnn import QuickCNNSettings
from dualstudent.networks.whitened_cnn import WhitenedCNNSettings
from dualstudent.recipes import chooser
from dualstudent.recipes.chooser import ImageFacts, choose_recipe, has_fast_bfloat16
from dualstudent.recipes.reading import apply_changes, validate
from dualstudent.recipes.schema import Recipe
from dualstudent.settings import Table

FACTS = ImageFacts(3, 64, labeled=80, unlabeled=5_000, may_be_mirrored=False, gpu=None)


def chosen(wanted: Table | None = None, **facts: Any) -> Recipe:
    table = choose_recipe(replace(FACTS, **facts), wanted).table
    return validate(table | {"data": {}}, "chosen")


@pytest.mark.parametrize(
    ("size", "channels", "gpu", "network"),
    [
        (16, 1, None, "whitened-cnn"),
        (28, 1, "cuda", "whitened-cnn"),
        (28, 3, None, "whitened-cnn"),
        (32, 3, "mps", "whitened-cnn"),
        (64, 1, None, "whitened-cnn"),
        (32, 3, "cuda", "cnn13"),
        (224, 3, "cuda", "resnext50"),
    ],
)
def test_network(size: int, channels: int, gpu: str | None, network: str) -> None:
    assert chosen(size=size, channels=channels, gpu=gpu).network.name == network


@pytest.mark.parametrize(
    ("size", "channels", "widths"),
    [
        (4, 1, (16,)),
        (8, 1, (16, 32)),
        (9, 1, (16, 32, 64)),
        (16, 1, (16, 32, 64)),
        (28, 3, (32, 64, 128)),
        (47, 3, (32, 64, 128)),
        (48, 3, (16, 32, 64, 128)),
        (64, 1, (16, 32, 64, 128)),
    ],
)
def test_small_gray_images_get_fewer_channels_and_large_ones_a_block_more(
    size: int, channels: int, widths: tuple[int, ...]
) -> None:
    network = chosen(size=size, channels=channels).network
    assert isinstance(network, WhitenedCNNSettings)
    assert network.widths == widths
    build_network(network, channels, 2, size, seed=0, student=0)  # is large enough


@pytest.mark.parametrize("unlabeled", [0, 7, 96, 500, 5_000, 60_000])
@pytest.mark.parametrize("labels", [10, 320])
def test_batches_can_be_filled_and_steps_are_what_a_cpu_finishes(
    unlabeled: int, labels: int
) -> None:
    recipe = chosen(unlabeled=unlabeled, labeled=labels)
    size, labeled = recipe.batch.size, recipe.batch.labeled
    samples, each = (unlabeled, size - labeled) if unlabeled else (labels, size)
    assert labeled <= labels
    assert (labeled == size) == (unlabeled == 0)
    assert 1_500 <= samples // each * recipe.schedule.epochs <= 4_000


@pytest.mark.parametrize(
    ("wanted", "size", "labeled"),
    [({"size": 16}, 16, 4), ({"labeled": 8}, 104, 8), ({"size": 20, "labeled": 10}, 20, 10)],
)
def test_the_rest_of_a_batch_goes_with_what_is_set(
    wanted: dict[str, int], size: int, labeled: int
) -> None:
    choice = choose_recipe(FACTS, {"batch": wanted})
    assert choice.table["batch"] == {"size": size, "labeled": labeled}
    per_epoch, epochs = 5_000 // (size - labeled), choice.table["schedule"]["epochs"]
    assert f"{per_epoch * epochs:,} in all" in choice.reasons["schedule.epochs"]


@pytest.mark.parametrize(
    ("size", "channels", "unlabeled", "gpu", "steps"),
    [
        (28, 1, 5_000, None, 6_000),
        (28, 1, 1_920, None, 3_000),
        (48, 1, 5_000, None, 3_000),
        (28, 3, 5_000, None, 3_000),
        (28, 1, 5_000, "mps", 3_000),
        (28, 1, 5_000, "cuda", 20_000),
    ],
)
def test_many_small_gray_images_have_more_steps_on_a_cpu(
    size: int, channels: int, unlabeled: int, gpu: str | None, steps: int
) -> None:
    recipe = chosen(size=size, channels=channels, unlabeled=unlabeled, gpu=gpu)
    per_epoch = unlabeled // (recipe.batch.size - recipe.batch.labeled)
    assert recipe.schedule.epochs == round(steps / per_epoch)


def test_schedule_and_evaluation_go_with_the_epochs_that_are_set() -> None:
    table = choose_recipe(FACTS, {"schedule": {"epochs": 200}}).table
    warmup = {"warmup_epochs": 1, "warmup_from": 0}
    assert table["schedule"] == {"epochs": 200, "rampup_epochs": 50} | warmup
    assert table["evaluation"]["every"] == 10


def test_the_warm_up_of_few_images_is_longer_than_a_pass_over_them() -> None:
    assert chosen(unlabeled=600).schedule.warmup_epochs == pytest.approx(50 / 6)
    assert chosen({"schedule": {"epochs": 8}}, unlabeled=600).schedule.warmup_epochs == 2
    assert chosen(unlabeled=600, on_features=True).schedule.warmup_epochs == 1


@pytest.mark.parametrize("harmless", [False, True])
def test_views_are_mirrored_only_where_that_is_harmless(harmless: bool) -> None:
    views = chosen(may_be_mirrored=harmless).transforms
    assert (views.weak.flip, views.strong.flip) == (harmless, harmless)


@pytest.mark.parametrize(
    ("facts", "any_color"),
    [
        ({}, True),
        ({"color_matters": True}, False),
        ({"color_matters": True, "adapts": True}, True),  # domains differ in color
        ({"channels": 1}, False),
        ({"on_features": True}, False),
    ],
)
def test_weak_views_have_any_color_where_it_does_not_matter(
    facts: dict[str, Any], any_color: bool
) -> None:
    largest = (0, 0, 1, 0.5) if any_color else (0, 0, 0, 0)  # saturation and hue are the last
    assert chosen(**facts).transforms.weak.jitter == largest


@pytest.mark.parametrize(
    ("shares", "target"), [(None, None), ((), "uniform"), ((0.7, 0.3), (0.7, 0.3))]
)
def test_predictions_are_aligned_with_the_shares_of_the_classes_where_they_are_known(
    shares: tuple[float, ...] | None, target: str | tuple[float, ...] | None
) -> None:
    aligned = {"distribution_alignment": True, "alignment_target": target} if target else {}
    expected = FixMatchSettings.model_validate(aligned)
    assert chosen(shares=shares).method == expected
    choice = choose_recipe(replace(FACTS, shares=shares))
    assert ("method.distribution_alignment" in choice.reasons) == (target is not None)


def test_alignment_can_be_turned_off_and_is_of_fixmatch_alone() -> None:
    off: Table = {"method": {"distribution_alignment": False}}
    assert chosen(off, shares=()).method == FixMatchSettings()
    choice = choose_recipe(replace(FACTS, shares=()), off)
    assert "method.distribution_alignment" not in choice.reasons
    assert chosen({"method": {"name": "flexmatch"}}, shares=()).method.name == "flexmatch"


@pytest.mark.parametrize("shares", [None, (), (0.7, 0.3)])
def test_what_is_said_of_alignment_is_kept(shares: tuple[float, ...] | None) -> None:
    said: Table = {"method": {"alignment_target": [0.6, 0.4]}}
    method = FixMatchSettings(distribution_alignment=True, alignment_target=(0.6, 0.4))
    assert chosen(said, shares=shares).method == method
    yes: Table = {"method": {"distribution_alignment": True}}
    found = "labeled" if shares is None else shares or "uniform"
    aligned = {"distribution_alignment": True, "alignment_target": found}
    assert chosen(yes, shares=shares).method == FixMatchSettings.model_validate(aligned)


def test_strong_views_are_changed_far_more_than_weak_ones() -> None:
    recipe = chosen()
    weak, strong = recipe.transforms.weak, recipe.transforms.strong
    assert recipe.method.name == "fixmatch"
    assert weak == Transform(translate=64 // 14, jitter=(0, 0, 1, 0.5))  # a photo of any color
    assert all((strong.cutout, any(strong.affine), strong.randaugment))


def test_weak_views_of_any_color_are_told_with_how_to_keep_the_colors() -> None:
    assert "[0, 0, 0, 0]" in choose_recipe(FACTS).reasons["transforms.weak.jitter"]
    kept = apply_changes({}, ["transforms.weak.jitter=[0, 0, 0, 0]"])
    assert not any(chosen(kept).transforms.weak.jitter)
    assert choose_recipe(FACTS, kept).reasons["transforms.weak.jitter"] == "as you set it"
    for known in ({"channels": 1}, {"on_features": True}, {"tuned": "efficientnet-lite2"}):
        wanted = {"trunk": {"name": "efficientnet-lite0"}} if "on_features" in known else {}
        assert (
            "transforms.weak.jitter" not in choose_recipe(replace(FACTS, **known), wanted).reasons
        )


def test_images_with_other_channels_than_gray_or_colors_have_strong_views_too() -> None:
    strong = chosen(channels=4).transforms.strong
    assert strong.randaugment == 0
    assert not strong.is_empty


def test_no_warm_up_is_longer_than_a_quarter_of_the_training_and_it_can_be_left_out() -> None:
    assert chosen({"schedule": {"epochs": 2}}).schedule.warmup_epochs == 0.5
    longer = chosen({"schedule": {"epochs": 2, "warmup_epochs": 1.5}})
    assert longer.schedule.warmup_from == 0
    without = chosen({"schedule": {"epochs": 2, "warmup_epochs": 0}})
    assert without.schedule.warmup_from is None


def test_dual_student_has_its_own_weights_and_learns_from_weak_views_that_change_more() -> None:
    recipe = chosen({"method": {"name": "dual-student", "stabilization_weight": 50}})
    method = recipe.method.model_dump()
    assert (method["consistency_weight"], method["stabilization_weight"]) == (10, 50)
    assert method["confidence_threshold"] == 0.6
    assert method["classification_average"] == "labeled"
    assert recipe.optimizer.learning_rate == 0.1
    assert all(limit > 0 for limit in recipe.transforms.weak.affine)


@pytest.mark.parametrize(
    ("method", "weak"),
    [
        ("freematch", False),
        ("mean-teacher", True),
        ("supervised", True),
    ],
)
def test_only_methods_without_strong_views_change_weak_ones_more(method: str, weak: bool) -> None:
    recipe = chosen({"method": {"name": method}})
    reasons = choose_recipe(FACTS, {"method": {"name": method}}).reasons
    assert any(recipe.transforms.weak.affine) == weak
    assert ("transforms.weak.affine" in reasons) == weak
    assert ("transforms.strong.randaugment" in reasons) == (not weak)
    assert recipe.method.confidence_threshold == 0.8  # its own default
    assert reasons["method.name"] == "as you set it"


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__name__)
def test_every_method_can_be_asked_for(method: Any) -> None:
    name = method.Settings.model_fields["name"].default
    settings = chosen({"method": {"name": name}, "schedule": {"epochs": 8}}).method.model_dump()
    assert settings["name"] == name
    assert settings.get("average_from", 6) == 6  # three quarters of the epochs
    assert settings.get("classification_average", "labeled") == "labeled"


@pytest.mark.parametrize(
    ("method", "of_images", "of_vectors"), [("ict", 10, 10), ("mixmatch", 75, 1)]
)
def test_weights_of_mixtures_suit_short_trainings(
    method: str, of_images: float, of_vectors: float
) -> None:
    asked: Table = {"method": {"name": method}}
    on_features = asked | {"trunk": {"name": "efficientnet-lite0"}}
    made = [chosen(asked), chosen(on_features, on_features=True), build_for_vectors(method)]
    found = [recipe.method.model_dump()["consistency_weight"] for recipe in made]
    assert found == [of_images, of_vectors, of_vectors]
    stated: Table = {"method": {"name": method, "consistency_weight": 7}}
    assert chosen(stated).method.model_dump()["consistency_weight"] == 7


def build_for_vectors(method: str) -> Recipe:
    """The recipe of the estimator for feature vectors."""
    parameters = DualStudentClassifier(method=method).get_params()
    return build_recipe(parameters, prepare_arrays(np.eye(4), [0, 1, -1, -1]), seed=0)


def test_the_perturbation_of_vat_goes_with_the_number_of_pixels() -> None:
    method = chosen({"method": {"name": "vat"}}, size=16, channels=3).method
    assert method.model_dump()["epsilon"] == 4  # 8 for 32 pixels a side


def test_another_network_has_its_own_settings_and_learning_rate() -> None:
    recipe = chosen({"network": {"name": "quick-cnn"}})
    assert recipe.network == QuickCNNSettings()
    assert recipe.optimizer.learning_rate == 0.1
    assert chosen().optimizer.learning_rate == 0.2
    faster = {"network": {"name": "quick-cnn"}, "optimizer": {"learning_rate": 0.3}}
    assert chosen(faster).optimizer.learning_rate == 0.3


@pytest.mark.parametrize(
    ("fast", "gpu", "wanted", "precision"),
    [
        (True, None, {}, "bf16-mixed"),
        (False, None, {}, "32-true"),
        (True, "mps", {}, "32-true"),
        (True, None, {"network": {"name": "quick-cnn"}}, "32-true"),
        (True, None, {"device": {"precision": "32-true"}}, "32-true"),
    ],
)
def test_a_cpu_that_has_bfloat16_computes_with_it(
    fast: bool, gpu: str | None, wanted: Table, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chooser, "has_fast_bfloat16", lambda: fast)
    assert chosen(wanted, gpu=gpu).device.precision == precision
    reasons = choose_recipe(replace(FACTS, gpu=gpu), wanted).reasons  # type: ignore[arg-type]
    is_told = precision == "bf16-mixed" or "device" in wanted
    assert ("device.precision" in reasons) == is_told


@pytest.mark.parametrize("fast", [True, False])
def test_a_trunk_computes_views_in_bfloat16_where_that_is_fast(
    fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chooser, "has_fast_bfloat16", lambda: fast)
    wanted: Table = {"trunk": {"name": "efficientnet-lite0", "weak_views": 2}}
    choice = choose_recipe(replace(FACTS, on_features=True), wanted)
    assert choice.table["trunk"].get("precision") == ("bf16-true" if fast else None)
    assert choice.table["trunk"]["weak_views"] == 2
    assert ("trunk.precision" in choice.reasons) == fast


@pytest.mark.parametrize("there", ["_is_avx512_bf16_supported", "_is_amx_tile_supported", ""])
def test_bfloat16_is_asked_of_torch_as_far_as_it_knows(
    there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.delattr(torch.cpu, name, raising=False)
    if there:
        monkeypatch.setattr(torch.cpu, there, lambda: True, raising=False)
    assert has_fast_bfloat16() == bool(there)


def test_a_trunk_sees_the_true_colors() -> None:
    recipe = chosen({"trunk": {"name": "efficientnet-lite0"}}, on_features=True)
    assert recipe.network.name == "mlp"
    assert recipe.transforms.weak == Transform(translate=64 // 14)


def test_methods_on_features_get_settings_for_vectors() -> None:
    photos = ImageFacts(3, 224, 100, 3_000, may_be_mirrored=True, gpu=None, on_features=True)
    vat = choose_recipe(photos, {"method": {"name": "vat"}}).table["method"]
    assert vat["epsilon"] == pytest.approx(8 * math.sqrt(1280 / 3072))
    both = {"method": {"name": "vat"}, "trunk": {"name": "efficientnet-lite0+2"}}
    table = choose_recipe(photos, both).table
    assert table["method"]["epsilon"] == pytest.approx(8 * math.sqrt(2560 / 3072))
    assert table["optimizer"]["learning_rate"] == pytest.approx(0.0015)  # as 0.003 for half as many
    imbalanced = choose_recipe(photos, {"method": {"name": "imbalanced-student"}}).table["method"]
    assert imbalanced["strong_network"]["name"] == "mlp"


def test_two_domains_on_features() -> None:
    from_scratch = chosen(adapts=True)
    assert (from_scratch.method.name, from_scratch.network.batch_norm) == ("fixmatch", "together")
    trunk: Table = {"trunk": {"name": "efficientnet-lite0"}}
    on_features = chosen(trunk, adapts=True, on_features=True)
    network = on_features.network.model_dump()
    assert (network["hidden"], network["batch_norm"]) == ((256,), "by-domain")
    assert on_features.method.name == "dual-student"
    heads: Table = trunk | {"network": {"hidden": []}, "method": {"name": "fixmatch"}}
    as_set = chosen(heads, adapts=True, on_features=True)
    assert (as_set.method.name, as_set.network.batch_norm) == ("fixmatch", "together")
    facts = replace(FACTS, adapts=True, on_features=True)
    assert "apart" in choose_recipe(facts, trunk).reasons["network.batch_norm"]
    assert "network.batch_norm" not in choose_recipe(facts, heads).reasons


@pytest.mark.parametrize(
    ("wanted", "method"),
    [
        ({"stabilization_weight": 30}, "dual-student"),
        ({"pseudo_label_threshold": 0.9}, "fixmatch"),
        ({"alignment_target": "uniform"}, "fixmatch"),
        ({"name": "imbalanced-student"}, "imbalanced-student"),
    ],
)
def test_settings_of_a_method_choose_it_for_two_domains(wanted: Table, method: str) -> None:
    table: Table = {"trunk": {"name": "efficientnet-lite0"}, "method": wanted}
    recipe = chosen(table, adapts=True, on_features=True)
    assert recipe.method.name == method
    assert {each.batch_norm for each in recipe.method.networks(recipe.network)} == {"by-domain"}
