import json
import shutil
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from dualstudent import Run, UserError, export_run, load_exported, load_trained, train
from dualstudent.data.samples import ImageSamples
from dualstudent.export import formats
from dualstudent.export.exporter import find_architecture
from dualstudent.export.formats import SafetensorsFile
from dualstudent.methods import METHODS
from dualstudent.training.checkpoint import read_tensors, write_tensors
from dualstudent.training.trainer import Trainer
from tests.support.isolated import json_without
from tests.support.recipes import small_recipe
from tests.support.runs import change_recipe

STRONG = 'method.strong_network={name="quick-cnn"}'
NEEDED = {  # by a method, for two epochs of small images
    "imbalanced-student": [STRONG],
    "pi+fastswa": ["method.average_from=1"],
    "mean-teacher+fastswa": ["method.average_from=1"],
    "vat": ["method.epsilon=1.0"],
}
ONNXRUNTIME = """
import json, numpy, onnxruntime
session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
images = numpy.load("images.npy")
answers = [session.run(None, {"images": part})[0] for part in (images[:1], images[1:6], images)]
print(json.dumps([session.get_modelmeta().custom_metadata_map, *(a.tolist() for a in answers)]))
"""
TORCH_EXPORT = """
import json, numpy, torch
card = {"dualstudent.json": ""}
model = torch.export.load("model.pt2", extra_files=card).module()
images = torch.from_numpy(numpy.load("images.npy"))
answers = [model(part).tolist() for part in (images[:1], images[1:6], images)]
print(json.dumps([json.loads(card["dualstudent.json"]), *answers]))
"""


@pytest.fixture(scope="module")
def runs(
    small_run: Run, teacher_run: Run, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Run]:
    """Of three methods, by the name of the network that each of them exports."""
    imbalanced = small_recipe("method.name=imbalanced-student", STRONG)
    return {
        "student1": small_run,
        "teacher": teacher_run,
        "weak": train(imbalanced, tmp_path_factory.mktemp("runs") / "imbalanced"),
    }


def bytes_and_labels(run: Run) -> tuple[Tensor, Tensor]:
    """The test set: bytes and labels."""
    data = load_trained(run).data
    assert isinstance(data.test, ImageSamples)
    return data.test.pixels, data.test_labels


def answers(run: Run, student: str, images: Tensor) -> Tensor:
    """What the trained network says, normalized by hand; the recipe says mean and std 0.5."""
    network = load_trained(run).method.evaluated[student].eval()
    with torch.no_grad():
        prediction = network((images.float() / 255 - 0.5) / 0.5)
    return torch.softmax(prediction.class_logits, dim=1)


def check_answers(run: Run, student: str, found: list[list[list[float]]]) -> None:
    """Of one image, of the next five, and of all: as trained, and as good as the run says."""
    images, labels = bytes_and_labels(run)
    expected = answers(run, student, images).numpy()
    for part, some in zip((slice(0, 1), slice(1, 6), slice(None)), found, strict=True):
        np.testing.assert_allclose(np.array(some), expected[part], rtol=0, atol=1e-5)
    wrong = np.array(found[-1]).argmax(axis=1) != labels.numpy()
    assert 100 * wrong.mean() == pytest.approx(run.read_result()["networks"][student]["error"])


@pytest.mark.parametrize("student", ["student1", "teacher", "weak"])
def test_onnxruntime_alone_says_what_the_run_said(
    student: str, runs: dict[str, Run], tmp_path: Path
) -> None:
    run = runs[student]
    made = export_run(run, "onnx", tmp_path / "model.onnx")
    np.save(tmp_path / "images.npy", bytes_and_labels(run)[0].numpy())
    card, *found = json_without(["torch", "dualstudent", "onnx"], ONNXRUNTIME, tmp_path)
    check_answers(run, student, found)
    assert json.loads(card["classes"]) == [str(digit) for digit in range(10)]
    assert (card["student"], card["image_size"], card["channels"]) == (student, "8", "1")
    assert float(card["test_error"]) == run.read_result()["networks"][student]["error"]
    assert "(N, 1, 8, 8)" in card["preprocessing"]
    assert "resize it to 8 × 8 by" in card["preprocessing"]
    assert "middle" not in card["preprocessing"]
    assert json.loads(card["exported_with"])["torch"] == torch.__version__
    assert tomllib.loads(card["recipe"]) == tomllib.loads(run.recipe.read_text())
    assert made.difference < 1e-5
    assert [path.name for path in tmp_path.iterdir() if "model" in path.name] == ["model.onnx"]


@pytest.mark.slow
def test_torch_export_needs_no_dualstudent(runs: dict[str, Run], tmp_path: Path) -> None:
    run = runs["student1"]
    export_run(run, "torch-export", tmp_path / "model.pt2", "student2")
    np.save(tmp_path / "images.npy", bytes_and_labels(run)[0].numpy())
    card, *found = json_without(["dualstudent"], TORCH_EXPORT, tmp_path)
    check_answers(run, "student2", found)
    assert card["classes"] == [str(digit) for digit in range(10)]
    assert card["student"] == "student2"


@pytest.mark.parametrize("student", ["weak", "strong"])
def test_safetensors_are_rebuilt_without_the_run(
    student: str, runs: dict[str, Run], tmp_path: Path
) -> None:
    run = runs["weak"]
    copy = Run(Path(shutil.copytree(run.folder, tmp_path / "copy")))
    made = export_run(copy, "safetensors", tmp_path / "mine.safetensors", student)
    shutil.rmtree(copy.folder)
    model = load_exported(tmp_path / "mine.safetensors")
    images, _ = bytes_and_labels(run)
    check_answers(
        run, student, [model(part).tolist() for part in (images[:1], images[1:6], images)]
    )
    assert model.card == made.card
    assert model.card.network.name == {"weak": "digits-cnn", "strong": "quick-cnn"}[student]


def test_weights_are_whole_and_without_the_consistency_head(small_run: Run, tmp_path: Path) -> None:
    export_run(small_run, "safetensors", tmp_path / "m.safetensors")
    state = load_exported(tmp_path / "m.safetensors").state_dict()
    trained = load_trained(small_run).method.evaluated["student1"].state_dict()
    split = "trunk.0.0.parametrizations.weight.original"
    length, direction = trained[f"{split}0"].double(), trained[f"{split}1"].double()
    norm = (direction**2).sum(dim=(1, 2, 3), keepdim=True).sqrt()
    expected = (length * direction / norm).float()
    torch.testing.assert_close(state["network.trunk.0.0.weight"], expected)
    assert not any("parametrizations" in key or "follow" in key for key in state)
    assert sum(t.numel() for t in state.values()) < sum(t.numel() for t in trained.values())


@pytest.mark.parametrize("kind", METHODS, ids=lambda kind: kind.__name__)
def test_every_evaluated_network_has_an_architecture(kind: type) -> None:
    name = kind.Settings.model_fields["name"].default  # type: ignore[attr-defined]
    changes = [f"method.name={name}", "transforms.strong.noise=0.5", *NEEDED.get(name, ())]
    recipe = small_recipe(*changes)
    method = Trainer(recipe).method
    for network in method.evaluated:
        expected = "quick-cnn" if network == "strong" else "digits-cnn"
        assert find_architecture(network, method, recipe).name == expected


def test_files_say_nothing_about_the_machine(small_run: Run, tmp_path: Path) -> None:
    """No places of files: neither of the program nor of the user's data."""
    copy = Run(Path(shutil.copytree(small_run.folder, tmp_path / "copy")))
    recipe = copy.recipe.read_text().replace("[data]", f'[data]\nfolder = "{tmp_path}"')
    change_recipe(copy, recipe)
    for to in formats.FORMATS:
        content = export_run(copy, to).path.read_bytes()
        assert b"digits-8x8" in content
        for place in (b"site-packages", b".py", bytes(tmp_path), bytes(Path.home())):
            assert place not in content, (to, place)


def no_change(run: Run) -> None: ...


def never_finished(run: Run) -> None:
    run.result.unlink()


def of_another_version(run: Run) -> None:
    run.about.write_text('{"format": 1}')


def of_other_weights(run: Run) -> None:
    change_recipe(run, run.recipe.read_text().replace("width = 1", "width = 2"))


@pytest.mark.parametrize(
    ("change", "student", "path", "message"),
    [
        (no_change, "teacher", "a", "'teacher'.* student1, student2"),
        (no_change, None, "run/recipe.toml", r"recipe\.toml"),
        (no_change, None, "run", "run is a folder"),
        (no_change, None, "no/where", "no folder .*no"),
        (never_finished, None, "a", "dualstudent resume"),
        (of_another_version, None, "a", "format 1"),
        (of_other_weights, None, "a", r"model\.safetensors"),
    ],
)
def test_a_mistake_is_one_line_and_changes_nothing(
    change: Callable[[Run], None],
    student: str | None,
    path: str,
    message: str,
    small_run: Run,
    tmp_path: Path,
) -> None:
    folder = Path(shutil.copytree(small_run.folder, tmp_path / "run"))
    change(Run(folder))
    before = {each: each.stat().st_mtime_ns for each in sorted(tmp_path.rglob("*"))}
    with pytest.raises(UserError, match=message) as error:
        export_run(Run.open(str(folder)), "safetensors", str(tmp_path / path), student)
    assert "\n" not in str(error.value)
    assert {each: each.stat().st_mtime_ns for each in sorted(tmp_path.rglob("*"))} == before


def test_an_unknown_format_is_answered_with_the_known_ones(small_run: Run) -> None:
    with pytest.raises(UserError, match=r"'onx'.* onnx, torch-export, safetensors"):
        export_run(small_run, "onx")


@pytest.mark.parametrize("error", [1.1e-5, float("nan")])
def test_a_file_that_says_something_else_is_not_kept(
    error: float, small_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slightly(SafetensorsFile):
        def run(self, path: Path, images: Tensor) -> Tensor:
            found = super().run(path, images).clone()
            found[-1, 3] += error if len(images) > 1 else 0
            return found

    monkeypatch.setitem(formats.FORMATS, "safetensors", Slightly())
    with pytest.raises(UserError, match=f"{error:.1e}"):
        export_run(small_run, "safetensors", tmp_path / "model.safetensors")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_onnx_without_its_packages_says_what_to_install(
    package: str, small_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=r"the extra 'export'"):
        export_run(small_run, "onnx", tmp_path / "model.onnx")


def test_a_model_too_large_for_onnx(
    small_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "MAX_ONNX_BYTES", 50_000)
    with pytest.raises(UserError, match=r"0\.0 GB.* torch-export"):
        export_run(small_run, "onnx", tmp_path / "model.onnx")
    assert not any(tmp_path.iterdir())


def test_other_safetensors_are_not_taken_for_a_model(small_run: Run, tmp_path: Path) -> None:
    (tmp_path / "text.safetensors").write_text("no tensors")
    with pytest.raises(UserError, match=r"text\.safetensors"):
        load_exported(tmp_path / "text.safetensors")
    with pytest.raises(UserError, match=small_run.model.name):
        load_exported(small_run.model)


def test_a_network_larger_than_its_weights_is_not_even_built(
    small_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.safetensors"
    export_run(small_run, "safetensors", path)
    tensors, card = read_tensors(path)
    write_tensors(path, tensors, card | {"network": card["network"] | {"width": 256}})
    monkeypatch.setattr("dualstudent.export.formats.DeployedModel", None)
    with pytest.raises(UserError, match="export it again"):
        load_exported(path)


def test_weights_that_are_no_numbers_are_refused(small_run: Run, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    export_run(small_run, "safetensors", path)
    tensors, card = read_tensors(path)
    name = next(iter(tensors))
    write_tensors(path, tensors | {name: tensors[name] * torch.nan}, card)
    with pytest.raises(UserError, match=rf"m\.safetensors: {name} .* not finite"):
        load_exported(path)
