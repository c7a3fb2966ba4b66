import csv
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dualstudent import Run, UserError, load_recipe, prepare_arrays, train
from dualstudent.data.sources.bundled import load_digits_8x8
from dualstudent.sealed import write_sealed
from dualstudent.training.checkpoint import read_tensors, write_tensors
from dualstudent.training.predictor import Predictor, write_predictions
from tests.support.recipes import small_recipe
from tests.support.runs import change_recipe


@pytest.fixture(scope="module")
def run(small_run: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A copy of a run, for tests change it; the test images are written to files beside it."""
    folder = tmp_path_factory.mktemp("published")
    (folder / "images").mkdir()
    for number, pixels in enumerate(load_digits_8x8("test").pixels):
        Image.fromarray(pixels[0].numpy()).save(folder / "images" / f"{number}.png")
    return Run(shutil.copytree(small_run.folder, folder / "run"))


@pytest.mark.learns
def test_files_of_a_published_test_set_get_the_figures_of_the_run(run: Run, tmp_path: Path) -> None:
    written = write_predictions(run, [run.folder.parent / "images"], tmp_path / "p.csv")
    figures = run.read_result()["networks"]["student1"]
    truth = load_digits_8x8("test").labels.tolist()
    assert written.predicted == len(truth) > 250  # more than one chunk
    with (tmp_path / "p.csv").open(newline="") as file:
        rows = {int(Path(row["path"]).stem): row for row in csv.DictReader(file)}
    wrong = [number for number, label in enumerate(truth) if rows[number]["label"] != str(label)]
    assert 100 * len(wrong) / len(truth) == pytest.approx(figures["error"])
    assert 100 * written.stable / len(truth) == pytest.approx(figures["stable_share"])


@pytest.mark.learns
def test_students_agree_exactly_where_their_labels_are_the_same(run: Run) -> None:
    paths = [run.folder.parent / "images" / f"{number}.png" for number in range(50)]
    (said,) = Predictor(run).predict(paths)
    tensors, notes = read_tensors(run.model)
    swapped = {
        name.replace("student1", "x").replace("student2", "student1").replace("x", "student2"): t
        for name, t in tensors.items()
    }
    content = run.model.read_bytes()
    write_tensors(run.model, swapped, notes)
    try:
        (other,) = Predictor(run).predict(paths)
    finally:
        run.model.write_bytes(content)
    assert said.agree is not None
    assert other.agree is not None
    same = said.probabilities.argmax(1) == other.probabilities.argmax(1)
    assert torch.equal(said.agree, same)
    assert torch.equal(other.agree, same)
    assert 0 < same.sum() < 50  # 37 on both CPUs


def test_agreement_of_a_single_network_is_not_reported(
    run: Run, teacher_run: Run, tmp_path: Path
) -> None:
    image = run.folder.parent / "images" / "0.png"
    predictor = Predictor(teacher_run)
    (said,) = predictor.predict([image])
    assert said.agree is None
    assert predictor.network == "teacher"
    written = write_predictions(teacher_run, [image], tmp_path / "p.csv")
    assert written.network == "teacher"
    with (tmp_path / "p.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["agree"] == ""
    assert row["stable"] in ("true", "false")


@pytest.mark.parametrize(
    "notes",
    [
        {},
        {"classes": 3, "exported": "student1", "shape": [1, 8, 8]},
        {"classes": ["a"], "exported": "student1"},  # of an older version
        {"classes": ["a"], "exported": "student1", "shape": [1, 8, 8], "more": 1},
    ],
)
def test_a_foreign_model_is_refused(run: Run, notes: dict[str, object]) -> None:
    content, (tensors, _) = run.model.read_bytes(), read_tensors(run.model)
    write_tensors(run.model, tensors, notes)
    try:
        with pytest.raises(UserError, match=r"model\.safetensors: .*version"):
            Predictor(run)
    finally:
        run.model.write_bytes(content)


def test_the_model_of_a_run_on_other_data_is_refused(run: Run, tmp_path: Path) -> None:
    other = train(small_recipe("data.labels=20", "schedule.epochs=1"), tmp_path / "other")
    shutil.copy(run.model, other.model)
    with pytest.raises(UserError, match=r"model\.safetensors: .*another run"):
        Predictor(other)


def test_a_broken_model_or_one_of_another_network_is_refused(run: Run, tmp_path: Path) -> None:
    content, recipe = run.model.read_bytes(), run.recipe.read_text()
    try:
        run.model.write_bytes(content[:5_000])
        with pytest.raises(UserError, match=r"model\.safetensors: .*read"):
            Predictor(run)
        run.model.write_bytes(content)
        change_recipe(run, recipe.replace("width = 1", "width = 2"))
        with pytest.raises(UserError, match=r"model\.safetensors: .*recipe\.toml"):
            Predictor(run)
    finally:
        run.model.write_bytes(content)
        change_recipe(run, recipe)


def test_a_broken_file_changes_nothing_for_the_others(run: Run, tmp_path: Path) -> None:
    paths = [run.folder.parent / "images" / f"{number}.png" for number in range(3)]
    (tmp_path / "broken.png").write_bytes(paths[0].read_bytes()[:40])
    (clean,) = Predictor(run).predict(paths)
    (found,) = Predictor(run).predict([str(paths[0]), tmp_path / "broken.png", *paths[1:]])
    assert found.paths == clean.paths
    assert torch.equal(found.probabilities, clean.probabilities)
    assert [each.path for each in found.unreadable] == [tmp_path / "broken.png"]


def test_runs_that_cannot_predict_files_are_refused(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    data = prepare_arrays(rng.integers(0, 256, (40, 8, 8), np.uint8), ["a", "b"] * 20)
    changes = ["batch.size=20", "batch.labeled=20", "schedule.epochs=1"]
    handed_over = train(load_recipe("digits", changes), tmp_path / "images", data=data)
    with pytest.raises(UserError, match="handed over from Python"):
        Predictor(handed_over)
    data = prepare_arrays(rng.normal(size=(40, 8)), ["a", "b"] * 20)
    changes.append("network.name=mlp")
    vectors = train(load_recipe("digits", changes), tmp_path / "vectors", data=data)
    with pytest.raises(UserError, match=r"\[8\], not .*images"):
        Predictor(vectors)
    vectors.result.unlink()
    with pytest.raises(UserError, match="dualstudent resume"):
        Predictor(vectors)
    write_sealed(vectors.about, vectors.read_about() | {"format": 1})
    with pytest.raises(UserError, match="format 1,"):
        Run.open(vectors.folder)
