"""Runs of strangers: whatever their files say, an error is one line and memory is bounded."""

import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dualstudent import Predictor, Run, UserError, export_run, resume
from dualstudent.report.page import write_report
from dualstudent.sealed import write_sealed
from dualstudent.training.checkpoint import read_tensors, write_tensors
from dualstudent.training.model import evaluate_run
from tests.support.hostile import list_changes
from tests.support.runs import change_recipe

VARIANTS = 75


@pytest.fixture
def limited_memory() -> Iterator[None]:
    """2 GB more than now; what asks for more fails at once."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**31, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image.png"
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(path)
    return path


@pytest.fixture
def run(small_run: Run, tmp_path: Path) -> Run:
    return copy_of(small_run, tmp_path / "run")


def copy_of(run: Run, folder: Path) -> Run:
    return Run(Path(shutil.copytree(run.folder, folder)))


def list_uses(folder: Path, image: Path) -> list[Callable[[], object]]:
    """Everything that can be done with a run."""
    return [
        lambda: list(Predictor(Run.open(folder)).predict([image])),
        lambda: evaluate_run(Run.open(folder)),
        lambda: write_report([Run.open(folder)], folder / "new.html"),
        lambda: export_run(Run.open(folder), "safetensors", folder / "new.safetensors"),
        lambda: resume(folder),
    ]


def is_refused(use: Callable[[], object], name: str) -> bool:
    try:
        use()
    except UserError as error:
        if not str(error).isprintable():
            raise AssertionError(f"{name} raised more than a line: {str(error)!r}") from error
        return True
    except Exception as error:
        raise AssertionError(f"{name} raised {error!r}") from error
    return False


@pytest.mark.slow
@pytest.mark.usefixtures("limited_memory")
@pytest.mark.filterwarnings("ignore")
def test_hostile_files_are_refused_or_harmless(small_run: Run, image: Path, tmp_path: Path) -> None:
    refused = 0
    for name, change in list_changes(VARIANTS, small_run):
        run = copy_of(small_run, tmp_path / "hostile")
        change(run)
        outcomes = {is_refused(use, name) for use in list_uses(run.folder, image)}
        refused += True in outcomes
        shutil.rmtree(run.folder)
    assert refused > VARIANTS / 2  # the others changed what nobody reads


@pytest.mark.usefixtures("limited_memory")
@pytest.mark.parametrize(
    "note",
    [
        {"shape": [3, 100_000, 100_000]},
        {"shape": [1, -8, -8]},
        {"shape": [1, 8, 8, 1]},
        {"classes": []},
        {"classes": list("abc")},
        {"exported": 3},
    ],
)
def test_a_model_with_other_notes_is_refused(note: dict[str, object], run: Run) -> None:
    tensors, notes = read_tensors(run.model)
    write_tensors(run.model, tensors, notes | note)
    for use_run in (Predictor, evaluate_run):
        with pytest.raises(UserError, match=r"model\.safetensors"):
            use_run(run)


def test_weights_that_are_not_finite_are_refused(run: Run) -> None:
    tensors, notes = read_tensors(run.model)
    name = "student1.heads.classify.bias"
    write_tensors(run.model, tensors | {name: tensors[name] * float("nan")}, notes)
    with pytest.raises(UserError, match=f"{name} has values that are not finite"):
        Predictor(run)


@pytest.mark.usefixtures("limited_memory")
def test_a_network_larger_than_the_weights_is_not_even_built(run: Run) -> None:
    """256 times as many channels would take 2.5 GB for one convolution."""
    change_recipe(run, run.recipe.read_text().replace("width = 1", "width = 256"))
    for use_run in (Predictor, evaluate_run):
        with pytest.raises(UserError, match=r"model\.safetensors.*recipe\.toml"):
            use_run(run)


def test_classes_of_another_data_set_are_not_evaluated(run: Run) -> None:
    tensors, notes = read_tensors(run.model)
    renamed = notes | {"classes": [f"class {name}" for name in notes["classes"]]}
    write_tensors(run.model, tensors, renamed)
    with pytest.raises(UserError, match="other classes"):
        evaluate_run(run)


@pytest.mark.parametrize("text", ["seed = " + "9" * 5_000, "seed = " + "[" * 5_000, "\udcff"])
def test_recipes_without_end_are_refused(text: str, run: Run) -> None:
    run.recipe.write_text(text, errors="surrogateescape")
    about = run.read_about()
    write_sealed(run.about, about | {"digests": {}})
    with pytest.raises(UserError, match=r"recipe\.toml"):
        Predictor(run)


def test_half_a_character_is_refused(run: Run) -> None:
    write_sealed(run.result, run.read_result() | {"versions": {"dualstudent": "\ud800"}})
    with pytest.raises(UserError, match=r"result\.json"):
        run.read_result()


def test_metrics_that_are_said_to_be_longer_than_they_are_refused(run: Run) -> None:
    run.result.unlink()
    tensors, notes = read_tensors(run.checkpoint)
    write_tensors(run.checkpoint, tensors, notes | {"metrics_size": 2**62})
    with pytest.raises(UserError, match=r"metrics\.jsonl"):
        resume(run.folder)


def test_a_device_in_place_of_a_file_is_not_read(run: Run) -> None:
    run.result.unlink()
    run.metrics.unlink()
    run.metrics.symlink_to("/dev/zero")
    with pytest.raises(UserError, match=r"metrics\.jsonl: is missing, or is no file"):
        run.read_metrics()
