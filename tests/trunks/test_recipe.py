"""A trunk in a recipe: from a folder of images to a trained model, through the command line."""

from pathlib import Path

import pytest
import torch
from sklearn.linear_model import LogisticRegression

from dualstudent import Run, Trainer, UserError, load_recipe, train
from dualstudent.training.gain import read_gain
from dualstudent.training.model import evaluate_run, load_trained
from dualstudent.training.on_features import read_comparison
from dualstudent.trunks.baselines import BASELINES
from dualstudent.trunks.samples import KeptFeatures
from dualstudent.trunks.trunk import FrozenTrunk, build_trunk
from tests.support.command import Command
from tests.support.digit_files import write_digits
from tests.support.html_page import Page

TRUNK = ("trunk.name=efficientnet-lite0", "trunk.weights=random", "trunk.image_size=32")
FEW = ("trunk.weak_views=2", "trunk.strong_views=1", "schedule.epochs=2")
CHANGES = (*TRUNK, *FEW, "batch.size=32", "batch.labeled=8")
SETTINGS = [part for change in CHANGES for part in ("--set", change)]
pytestmark = pytest.mark.usefixtures("at_place")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trunks")


@pytest.fixture
def run(place: Path, command: Command) -> Run:
    """A run on gray digits and the features of a trunk; made once."""
    if not (place / "digits").exists():
        write_digits(place / "digits", labeled=3, unlabeled=40, test=20)
        code, output, messages = command("train", "--data", "digits", *SETTINGS)
        assert code == 0, messages
        (place / "output.txt").write_text(output)
    return Run.open(place / "runs" / "digits-0")


@pytest.fixture
def nothing_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FrozenTrunk, "forward", lambda *_: pytest.fail("computed again"))


def test_train_says_what_it_does_and_keeps_it_in_the_recipe(run: Run, place: Path) -> None:
    output = (place / "output.txt").read_text()
    assert "trunk.name = efficientnet-lite0: " in output
    assert "network.name = mlp: " in output
    assert "computing features: 320/320 views" in output  # 70 · (1 + 2 + 1) + 20 · (1 + 1)
    assert "test error" in output
    assert "dualstudent predict" not in output
    recipe = load_recipe(run.recipe)
    assert recipe.trunk is not None
    assert recipe.trunk.image_size == 32
    assert recipe.data.image_size == 16  # the digits have 8 pixels a side


@pytest.mark.usefixtures("nothing_computed")
def test_evaluation_gives_the_recorded_figures(run: Run) -> None:
    result = run.read_result()
    for name, figures in evaluate_run(run).items():
        assert figures["error"] == result["networks"][name]["error"]


def test_the_page_shows_the_images(run: Run) -> None:
    assert "<img" in run.page.read_text("utf-8")


@pytest.mark.usefixtures("nothing_computed")
def test_another_method_seed_and_head_use_the_same_features(run: Run, place: Path) -> None:
    recipe = load_recipe(run.recipe, ["seed=5", "network.hidden=[16]", "method.name=pi"])
    trainer = Trainer(recipe)
    assert isinstance(trainer.data.train, KeptFeatures)
    assert not trainer.data.train.has_strong_views  # it would not use them
    trainer.close()


def test_features_are_those_of_the_trunk_with_its_weights(run: Run) -> None:
    trained = load_trained(run)
    kept = trained.data.train
    assert isinstance(kept, KeptFeatures)
    (found,) = kept.make_views(torch.arange(5), [None])
    (images,) = kept.images.make_views(torch.arange(5), [None])
    assert trained.recipe.trunk is not None
    with torch.no_grad():
        vectors = build_trunk(trained.recipe.trunk, 1)(images).double()
    scale = kept.preprocessing()
    expected = (vectors - scale["mean"]) / scale["std"]
    assert found.shape == (5, 1280)
    assert (found - expected).abs().median() < 1e-2  # rounded to half precision


def test_what_is_not_possible_yet_is_refused_in_one_line(run: Run, command: Command) -> None:
    for arguments, said in (
        (("predict", run.folder, "digits", "-o", "found.csv"), "predict cannot compute yet"),
        (("export", run.folder, "--to", "safetensors"), "cannot be exported yet"),
    ):
        code, _, messages = command(*arguments)
        assert code == 2
        assert said in messages
        assert messages.count("\n") == 1
    assert not Path("found.csv").exists()


def test_baselines_are_shown_beside_the_result(run: Run, place: Path) -> None:
    comparison = read_comparison(run.read_result())
    assert comparison is not None
    assert (comparison.part, comparison.images, comparison.folds) == ("test", 20, 0)
    assert list(comparison.rows) == ["fixmatch", *BASELINES]
    assert comparison.rows["fixmatch"].error == pytest.approx(run.read_result()["error"])
    data = load_trained(run).data
    (vectors,) = data.train.make_views(data.labeled, [None])
    (asked,) = data.test.make_views(torch.arange(20), [None])
    line = LogisticRegression(max_iter=1000).fit(vectors, data.labels[data.labeled])
    wrong = line.predict(asked) != data.test_labels.numpy()
    assert comparison.rows["logistic regression"].error == pytest.approx(100 * wrong.mean())
    output, page = (place / "output.txt").read_text(), Page(run.page.read_text("utf-8"))
    assert all(sentence in output for sentence in comparison.describe())
    assert " ".join(comparison.describe()) in page.texts["p"]


def test_without_a_test_part_labels_are_cross_validated_and_choose(
    place: Path, command: Command
) -> None:
    write_digits(place / "untested", labeled=2, unlabeled=40, test=0)
    trained = ("--set", "trunk.weights=imagenet")  # with random ones, all features are equal
    code, output, messages = command("train", "--data", "untested", *SETTINGS, *trained)
    assert code == 0, messages
    run = Run.open(place / "runs" / "untested-0")
    result = run.read_result()
    comparison, gain = read_comparison(result), read_gain(result)
    assert comparison is not None
    assert gain is not None
    assert (comparison.part, comparison.images, comparison.folds) == ("cross-validation", 20, 2)
    assert list(comparison.rows)[:2] == ["fixmatch", "labels alone"]
    assert gain.error == pytest.approx(comparison.rows["fixmatch"].error)
    assert gain.labels_only_error == pytest.approx(comparison.rows["labels alone"].error)
    assert gain.chosen_on == "cross-validation"
    assert gain.labels_only_used == (gain.labels_only_error < gain.error)
    assert run.used == (run.labels_only if gain.labels_only_used else run)
    assert "each of 20 labels was hidden once, in 2 parts" in output
    assert "not evaluated" not in output
    assert "In cross-validation, fixmatch predicts" in run.page.read_text("utf-8")


@pytest.mark.usefixtures("nothing_computed")
def test_check_lists_what_the_features_show(run: Run, command: Command) -> None:
    code, output, messages = command("check", "digits", *SETTINGS)
    assert code == 0, messages
    assert "labels that may be wrong, by their features: " in output
    assert "unlabeled images unlike all labeled ones, by their features: " in output
    counts = run.read_result()["inspection"]["counts"]
    assert f"pairs that may be copies, by their features: {counts['lookalikes']}" in output


def test_a_network_for_images_is_refused_before_anything_is_computed() -> None:
    with pytest.raises(UserError, match=r"'quick-cnn' is for images, but the trunk"):
        load_recipe("demo", ["trunk.name=efficientnet-lite0", "network.name=quick-cnn"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("trunk.image_size=16", "trunk.image_size = 16"),
        ("trunk.weak_views=0", "trunk.weak_views = 0"),
        ("trunk.name=resnet50", "trunk.name = 'resnet50'"),
        ("trunk.sice=3", "trunk.sice = 3: unknown key"),
    ],
)
def test_wrong_settings_are_refused(change: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        load_recipe("demo", ["trunk.name=efficientnet-lite0", "network.name=mlp", change])


def test_published_data_work_as_well(place: Path) -> None:
    small = ("data.source=digits-8x8", "data.images=60", "data.labels=20", "network.name=mlp")
    recipe = load_recipe("digits", [*small, *CHANGES, "data.image_size=8"])
    result = train(recipe, place / "published").read_result()
    assert 0 <= result["error"] <= 100
