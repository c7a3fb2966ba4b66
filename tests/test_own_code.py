"""Networks and methods of others: named by the user, they run; named by a file, they do not."""

import importlib
import re
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch

from dualstudent import (
    DualStudentClassifier,
    Interrupted,
    Run,
    UserError,
    discovery,
    export_run,
    load_exported,
    load_recipe,
    resume,
    train,
)
from dualstudent.discovery import ForeignCode
from dualstudent.experiments.rows import parse_row
from dualstudent.recipes.reading import RunsCodeWarning
from dualstudent.teach.images import find_collection
from tests.support.command import Command
from tests.support.digit_files import write_digits
from tests.support.own_code import write_code
from tests.support.recipes import SMALL, small_recipe
from tests.support.runs import RaisesSignalAt, assert_equal_runs

SHORT = ("schedule.epochs=1",)

_numbers = count()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a new module in the current folder, which is not on the path yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    name = write_code(tmp_path, f"own_code_{next(_numbers)}")
    yield name
    sys.modules.pop(name, None)


def test_an_own_network_is_trained_stopped_and_resumed_if_it_is_named(
    module: str, tmp_path: Path
) -> None:
    path = f"{module}:tiny"
    recipe = small_recipe(f"network.name={path}", "network.width=6")
    whole = train(recipe, tmp_path / "whole")
    with pytest.raises(Interrupted):
        train(recipe, tmp_path / "run", RaisesSignalAt(40))
    with pytest.raises(ForeignCode, match=f"--import {path}"):
        resume(tmp_path / "run")
    assert_equal_runs(resume(tmp_path / "run", imports=[path]), whole)
    assert recipe.network.model_dump()["width"] == 6


def test_an_own_method_is_trained_by_its_settings(module: str, tmp_path: Path) -> None:
    path, losses = f"{module}:Mine", []
    for weight in (0.5, 1.0):
        recipe = small_recipe(f"method.name={path}", f"method.weight={weight}", *SHORT)
        run = train(recipe, tmp_path / str(weight))
        losses.append(run.read_metrics()[0]["loss"][0]["classification"])
        assert run.page.is_file()
    assert losses[0] < losses[1]
    assert recipe.method.label_smoothing == small_recipe().method.label_smoothing


def test_an_own_method_is_a_row_of_a_comparison(module: str) -> None:
    row = parse_row(f"{module}:Mine:weight=2")
    assert row.changes == (f"method.name={module}:Mine", "method.weight=2")
    assert [row.has_setting(f"method.{key}") for key in ("weight", "decay")] == [True, False]
    assert row.file_name == f"{module},Mine,weight=2"
    with pytest.raises(UserError, match="there is no method"):
        parse_row(f"{module}:no_method")


def test_nothing_of_a_strangers_run_is_imported_unless_it_is_named(
    module: str, tmp_path: Path, command: Command
) -> None:
    path = f"{module}:tiny"
    run = train(small_recipe(f"network.name={path}", *SHORT), tmp_path / "run").folder
    marker = tmp_path / "it-ran"
    (tmp_path / f"{module}.py").write_text(f"open({str(marker)!r}, 'w').close()\n1 / 0\n")
    del sys.modules[module]
    (image := tmp_path / "image.png").touch()
    for words in (
        ["resume", run],
        ["evaluate", run],
        ["report", run],
        ["predict", run, image, "-o", tmp_path / "out.csv"],
        ["label", run, "-o", tmp_path / "out.csv"],
        ["export", run, "--to", "onnx"],
        ["train", run / "recipe.toml", "--out", tmp_path / "again"],
    ):
        code, _, said = command(*words)
        assert (code, f"--import {path}" in said, said.count("\n")) == (2, True, 1), words
    code, out, _ = command("verify", run)
    assert code == 0
    assert re.search(rf"warning +recipe.toml: whole.*{path}", out)
    assert not marker.exists()
    code, _, said = command("evaluate", run, "--import", path)
    assert marker.exists()
    assert (code, "ZeroDivisionError" in said, said.count("\n")) == (2, True, 1)


def test_named_in_a_run_folder_it_runs_if_the_user_names_it_too(
    module: str, tmp_path: Path, command: Command
) -> None:
    path = f"{module}:tiny"
    run = train(small_recipe(f"network.name={path}", *SHORT), tmp_path / "run")
    export_run(run, "safetensors", tmp_path / "net.safetensors")
    for words in (["evaluate", run.folder], ["verify", run.folder], ["report", run.folder]):
        assert command(*words, "--import", path)[0] == 0, words
    with pytest.raises(ForeignCode, match=path):
        load_exported(tmp_path / "net.safetensors")
    model = load_exported(tmp_path / "net.safetensors", imports=[path])
    assert model(torch.zeros(2, 1, 8, 8, dtype=torch.uint8)).shape == (2, 10)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::dualstudent.recipes.reading.RunsCodeWarning")
def test_every_command_that_reads_the_recipe_of_a_run_takes_its_code(
    module: str, tmp_path: Path, command: Command
) -> None:
    path = f"{module}:tiny"
    recipe = train(small_recipe(f"network.name={path}", *SHORT), tmp_path / "run").recipe
    images = write_digits(tmp_path / "images", labeled=2, unlabeled=20, test=10)
    batch = ["--set", "batch.size=16", "--set", "batch.labeled=8"]
    commands: list[list[object]] = [
        ["recipes", "show", recipe, "--full"],
        ["doctor", recipe, "--steps", 2],
        ["compare", recipe, "--methods", f"{module}:Mine", "--seeds", 1, "--out", "compared"],
        ["train", recipe, "--data", images, "--out", "again", *batch],
    ]
    for words in commands:
        code, _, said = command(*words)
        assert (code, f"--import {path}" in said, said.count("\n")) == (2, True, 1), words
        code, out, said = command(*words, "--import", path)
        assert code == 0, (out, said)
    assert len(list(Path("compared/runs").iterdir())) == 1
    assert f"--import {path}" in Path("compared/index.html").read_text("utf-8")
    (tmp_path / f"{module}.py").unlink()
    del sys.modules[module]
    assert len(find_collection(Path("again")).images) == 50  # teach needs none of the code


def test_the_current_folder_is_looked_into_for_named_code_only(module: str, tmp_path: Path) -> None:
    write_code(tmp_path, beside := f"{module}_beside")
    (tmp_path / f"{module}.py").write_text(f"import {beside}\ntiny = {beside}.tiny\n")
    before = list(sys.path)
    assert discovery.import_object(f"{module}:tiny") is sys.modules.pop(beside).tiny
    with pytest.raises(UserError):
        discovery.import_object(f"{module}:tidy")
    assert sys.path == before
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(beside)


def test_a_recipe_of_ones_own_runs_code_with_a_warning(module: str, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        f'extends = "digits"\n[network]\nname = "{module}:tiny"\nwidth = 4\n'
    )
    with pytest.warns(RunsCodeWarning, match=f"{module}:tiny"):
        recipe = load_recipe("mine.toml", SMALL)
    assert recipe.imports == {f"{module}:tiny"}


MISTAKES = {
    "network.name=no_such_module_here:Tiny": "there is no module no_such_module_here",
    "network.name={}:tidy": r"has no tidy; did you mean 'tiny'\?",
    "network.name={}:no_method": "not a class or function",
    "network.name={}:plain": "makes a Trunk.*as_student",
    "network.name={}:of_other_features": r"returns \(2, 8\).*not \(2, 9\)",
    "network.name={}:of_other_classes": "11 classes, the data 10",
    "network.name={}:for_vectors": r"fails on samples \(2, 1, 8, 8\)",
    "network.name={}:fails": "ZeroDivisionError",
    "method.name={}:tiny": "dualstudent.Method",
    "method.name=dualstudent.methods:PiModel": "fixes its name",
}


@pytest.mark.parametrize("change", MISTAKES)
def test_mistakes_are_one_line_before_anything_runs(
    change: str, module: str, tmp_path: Path, command: Command
) -> None:
    words = [word for each in (*SMALL, change.format(module)) for word in ("--set", each)]
    code, _, said = command("train", "digits", *words, "--out", tmp_path / "run")
    assert (code, said.count("\n")) == (2, 1), said
    assert re.search(MISTAKES[change], said), said
    assert not (tmp_path / "run").exists()


def test_a_setting_that_the_network_does_not_take_is_named(module: str, command: Command) -> None:
    words = ["--set", f"network.name={module}:tiny", "--set", "network.depth=3"]
    code, _, said = command("train", "digits", *words)
    assert (code, "depth" in said, said.count("\n")) == (2, True, 1)


def test_installed_packages_add_names(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        EntryPoint("tiny", f"{module}:tiny", "dualstudent.networks"),
        EntryPoint("twice", f"{module}:Mine", "dualstudent.methods"),
    ]

    def entry_points(group: str, name: str) -> list[EntryPoint]:
        return [each for each in found if (each.group, each.name) == (group, name)]

    monkeypatch.setattr(discovery, "entry_points", entry_points)
    recipe = small_recipe("network.name=tiny", "network.width=5", "method.name=twice")
    assert recipe.imports == frozenset()
    assert recipe.method.model_dump()["weight"] == 0.5
    with pytest.raises(UserError, match="network"):
        small_recipe("network.name=tin")


def test_the_estimator_takes_own_networks_and_methods(module: str) -> None:
    X = np.random.default_rng(0).random((60, 8, 8)).astype("float32")
    y = np.array([0, 1] * 10 + [-1] * 40)
    classifier = DualStudentClassifier(
        network=f"{module}:tiny", method=f"{module}:Mine", epochs=1, random_state=0
    ).fit(X, y)
    copy = DualStudentClassifier()
    copy.__setstate__(classifier.__getstate__())
    np.testing.assert_array_equal(copy.predict_proba(X), classifier.predict_proba(X))


def test_a_run_knows_what_it_may_import(module: str, tmp_path: Path) -> None:
    run = train(small_recipe(f"network.name={module}:tiny", *SHORT), tmp_path / "run")
    assert run.read_recipe().network.name == f"{module}:tiny"
    assert run.labels_only.imports == run.imports == {f"{module}:tiny"}
    with pytest.raises(ForeignCode):
        Run.open(run.folder).read_recipe()
