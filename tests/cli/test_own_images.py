"""Own images from the folder to the predictions, through the command line."""

import json
import shutil
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from PIL import Image, ImageOps

from dualstudent import Run, UserError, load_recipe, resume
from dualstudent.batch import mark_domains
from dualstudent.cli.own_images import choose_recipe
from dualstudent.data import prepare as prepare_module
from dualstudent.data.images import cache
from dualstudent.recipes.own_images import locate_images, validate_request
from dualstudent.runs import train
from dualstudent.signals import Interrupted
from dualstudent.training.model import evaluate_run, load_trained
from dualstudent.training.predictor import write_predictions
from tests.support.command import Command
from tests.support.csv_rows import rows_of
from tests.support.digit_files import HOSTILE, write_digits
from tests.support.html_page import Page
from tests.support.mirrored import write_lights
from tests.support.pictures import save_picture
from tests.support.runs import RaisesSignalAt, StopsAtOnce, assert_equal_runs

QUICK = ("--set", "schedule.epochs=3", "--set", "batch.size=64", "--set", "batch.labeled=16")
pytestmark = pytest.mark.usefixtures("at_place")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("own")


@pytest.fixture
def digits(place: Path) -> Path:
    folder = place / "digits"
    return folder if folder.exists() else write_digits(folder)


@pytest.fixture
def run(place: Path, digits: Path, command: Command) -> Run:
    """A run on the digits, by the recipe chosen for them; made once."""
    if not (place / "runs" / "digits-0").exists():
        code, output, messages = command("train", "--data", "digits", *QUICK)
        assert code == 0, messages
        (place / "output.txt").write_text(output)
    return Run.open(place / "runs" / "digits-0")


def test_train_looks_chooses_explains_and_keeps_the_recipe(run: Run, place: Path) -> None:
    output = (place / "output.txt").read_text()
    assert "270 gray images, 150 of them unlabeled" in output
    assert "network.name = whitened-cnn: " in output
    assert "method.name = fixmatch: " in output
    assert "schedule.epochs = 3: " in output
    assert "data.validation = 0.0: " in output
    assert "test error" in output
    recipe = load_recipe(run.recipe)
    assert (recipe.data.path, recipe.data.image_size) == (place / "digits", 16)
    assert recipe.transforms.weak.translate == 1
    assert (recipe.schedule.rampup_epochs, recipe.evaluation.every) == (0.75, 1)  # of 3 epochs
    assert json.loads(run.split.read_text())["per_class"][HOSTILE] == 6


@pytest.mark.parametrize(("labels", "flip"), [(20, True), (18, False)])
def test_labels_that_are_not_to_be_used_do_not_decide_about_flips(
    labels: int, flip: bool, tmp_path: Path
) -> None:
    where = locate_images(write_lights(tmp_path / "lights", 20))
    changes = [f"data.labels={labels}", "schedule.epochs=1"]
    recipe, *_ = choose_recipe(validate_request(where, changes), changes, baseline=False)
    assert recipe.transforms.weak.flip == flip


def test_a_finished_run_is_not_continued_but_shown(run: Run, command: Command) -> None:
    before = {path: path.stat().st_mtime_ns for path in (run.model, run.result, run.metrics)}
    code, output, messages = command("resume", "runs/digits-0")
    assert code == 0, messages
    assert output.startswith("runs/digits-0 ")
    assert f"{run.read_result()['error']:.2f} % test error" in output
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_predictions_are_those_of_the_evaluation(run: Run, place: Path, command: Command) -> None:
    code, output, messages = command(
        "predict", "runs/digits-0", "digits/test", "-o", "all.csv", "--probabilities"
    )
    error = run.read_result()["networks"]["student"]["error"]
    assert code == 0, messages
    assert f"60 predictions in all.csv by student, {error:.2f} % test error; " in output
    rows = rows_of(place / "all.csv")
    assert len(rows) == 60
    figures = evaluate_run(run)["student"]
    wrong = [row for row in rows if Path(row["path"]).parent.name != row["label"]]
    assert 100 * len(wrong) / 60 == pytest.approx(figures["error"])
    stable = [row for row in rows if row["stable"] == "true"]
    assert 100 * len(stable) / 60 == pytest.approx(figures["stable_share"])
    assert all(Path(row["path"]).is_file() for row in rows)  # names survive, hostile as they are
    assert f"p({HOSTILE})" in rows[0]
    for row in rows:
        said = {key[2:-1]: float(p) for key, p in row.items() if key.startswith("p(")}
        assert sum(said.values()) == pytest.approx(1, abs=1e-4)
        assert max(said, key=said.__getitem__) == row["label"]
        assert said[row["label"]] == float(row["probability"])


def test_predict_skips_and_names_what_it_cannot_read(
    run: Run, place: Path, command: Command
) -> None:
    (place / "bad\n.png").write_bytes(b"no image")
    one = str(next((place / "digits" / "test" / "3").iterdir()))
    code, output, messages = command("predict", str(run.folder), "bad\n.png", one, "-o", "some.csv")
    assert code == 0
    assert "1 prediction in some.csv" in output
    assert "1 skipped" in output
    assert messages.startswith("skipped: bad\\n.png: not an image")
    assert messages.count("\n") == 1
    assert [row["path"] for row in rows_of(place / "some.csv")] == [one]


def test_without_a_file_predict_prints_a_table(run: Run, place: Path, command: Command) -> None:
    threes = place / "digits" / "test" / "3"
    command("predict", str(run.folder), str(threes), "-o", "threes.csv")
    rows = rows_of(place / "threes.csv")
    code, output, _ = command("predict", str(run.folder), rows[0]["path"], rows[1]["path"])
    assert code == 0
    for row in rows[:2]:
        (line,) = (line for line in output.splitlines() if row["probability"] in line)
        assert line.split()[-3:] == [row["label"], row["probability"], row["stable"]]
    assert "2 predictions by student, " in output
    _, output, _ = command("predict", str(run.folder), str(threes))
    assert output.count(".png") == min(len(rows), 20)
    assert ("-o FILE.csv writes all" in output) == (len(rows) > 20)


def test_predict_writes_nothing_where_something_is_wrong(
    run: Run, place: Path, command: Command
) -> None:
    (place / "mine.csv").write_text("precious")
    (place / "empty").mkdir()
    (place / "bad.png").write_bytes(b"no image")
    for paths, output, message in (
        (["digits/test"], "mine.csv", "mine.csv"),
        (["nowhere"], "new.csv", "nowhere"),
        (["empty"], "new.csv", "empty"),
        (["digits/test"], "no/new.csv", "no/new.csv"),
        (["bad.png"], "new.csv", "bad.png"),
    ):
        code, _, messages = command("predict", str(run.folder), *paths, "-o", output)
        assert code == 2
        assert messages.startswith("error: ")
        assert message in messages
        assert messages.count("\n") == 1
    assert (place / "mine.csv").read_text() == "precious"
    assert not list(place.glob("new.csv*"))


def test_a_model_needs_no_data_to_predict(run: Run, place: Path) -> None:
    image = next((place / "digits" / "unlabeled").iterdir())
    copy = Path(shutil.copy(image, place / "alone.png"))
    (place / "digits").rename(place / "away")
    try:
        assert write_predictions(run, [copy], place / "alone.csv").predicted == 1
        with pytest.raises(UserError, match="digits"):
            evaluate_run(run)
    finally:
        (place / "away").rename(place / "digits")


def test_a_stopped_run_on_own_images_continues_bit_for_bit_and_on_no_others(
    run: Run, place: Path
) -> None:
    with pytest.raises(Interrupted):
        train(load_recipe(run.recipe), place / "stopped", RaisesSignalAt(4))
    image = next((place / "digits" / "unlabeled").iterdir())
    content = image.read_bytes()
    save_picture(image, seed=1, side=8)
    with pytest.raises(UserError, match="stopped: "):
        resume(place / "stopped")
    with pytest.raises(UserError, match="digits-0: "):
        evaluate_run(run)
    image.unlink()
    with pytest.raises(UserError, match="stopped: "):
        resume(place / "stopped")
    image.write_bytes(content)
    assert_equal_runs(resume(place / "stopped"), run)


def test_a_run_without_test_images_says_so_or_validates(place: Path, command: Command) -> None:
    write_digits(place / "few", labeled=2, unlabeled=60, test=0)
    code, output, messages = command("train", "--data", "few", "--set", "schedule.epochs=1")
    assert code == 0, messages
    assert "20 labels for 10 classes" in output
    assert "each of 20 labels was hidden once, in 2 parts" in " ".join(output.split())
    code, output, messages = command(
        *("train", "--data", "few", "--set", "schedule.epochs=1", "--no-baseline", "--out", "alone")
    )
    assert code == 0, messages
    assert "not evaluated: there is neither a test part" in output
    write_digits(place / "many", labeled=10, unlabeled=60, test=0)
    code, output, messages = command("train", "--data", "many", "--set", "schedule.epochs=1")
    assert code == 0, messages
    assert "data.validation = 0.2: " in output
    assert "validation error" in output
    assert "test error" not in output
    assert "runs/many-0, validation part" in command("evaluate", "runs/many-0")[1]
    for folder in ("runs/few-0", "alone"):
        code, _, messages = command("evaluate", folder)
        assert code == 2
        assert messages.startswith(f"error: {folder}")


def test_a_recipe_with_other_images_and_a_target(place: Path, command: Command) -> None:
    write_digits(place / "target", labeled=1, unlabeled=80, test=20, ending=".bmp")
    write_digits(place / "source", unlabeled=0, test=0)
    code, output, messages = command(
        *("train", "digits", "--data", "source", "--target", "target", "--out", "adapted"),
        *("--set", "data.image_size=8", "--set", "schedule.epochs=1", "--set", "batch.size=64"),
    )
    assert code == 0, messages
    assert "90 of them unlabeled" in output
    recipe = Run.open(place / "adapted").read_recipe()
    assert recipe.data.source is None
    assert recipe.network == load_recipe("digits").network


def test_two_domains_in_a_folder_are_measured_on_the_source_and_kept_in_the_sheet(
    place: Path, command: Command
) -> None:
    write_digits(place / "both" / "source", labeled=10, unlabeled=0, test=0)
    write_digits(place / "both" / "target", labeled=1, unlabeled=80, test=0)
    for file in (place / "both" / "target").rglob("*.png"):
        ImageOps.invert(Image.open(file)).save(file)
    by_domain = ("--set", "network.batch_norm=by-domain", "--set", "schedule.epochs=1")
    code, output, messages = command(
        *("train", "--data", "both", "--out", "both-run", "--no-baseline", *by_domain)
    )
    assert code == 0, messages
    assert "source validation error" in output
    run = Run.open(place / "both-run")
    trainer = load_trained(run)
    data, network = trainer.data, trainer.method.evaluated["student"].eval()
    assert len(data.test_files) == 20
    assert all("source" in file.parts for file in data.test_files)
    (images,) = data.test.make_views(torch.arange(20), [None])
    with torch.no_grad():  # by what is known of the source
        found = network(mark_domains(images, torch.zeros(20))).class_logits.argmax(dim=1)
    wrong = (found != data.test_labels).float().mean().item()
    assert run.read_result()["error"] == pytest.approx(100 * wrong)
    assert evaluate_run(run)["student"]["error"] == pytest.approx(100 * wrong)

    code, output, messages = command("label", "both-run", "-o", "both.csv")
    assert code == 0, messages
    assert "trusted: nothing, as precision on the source says nothing about the target" in output
    again, first = (
        prepare_module.DataSettings(path=place / name).list_images()
        for name in ("both.csv", "both")
    )
    for listing in (again, first):
        assert listing.adapts
    assert sorted(zip(again.paths, again.labels, again.targets, strict=True)) == sorted(
        zip(first.paths, first.labels, first.targets, strict=True)
    )


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ((), "holds no images"),
        (("a/1.png", "a/2.png"), "all labels are 'a'"),
        (("a/1.png", "b/1.png", "test/c/1.png"), "the test has images of 'c'"),
    ],
)
def test_images_that_cannot_be_trained_with_leave_nothing_behind(
    files: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: Command,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for file in files:
        save_picture(tmp_path / "data" / file)
    code, _, messages = command("train", "--data", "data")
    assert code == 2
    assert messages.startswith("error: ")
    assert message in messages
    assert messages.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_contradictions_stop_training_with_the_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(8):
        save_picture(tmp_path / "data" / "ab"[number % 2] / f"{number}.png", seed=number // 2)
    code, _, messages = command("train", "--data", "data")
    assert code == 2
    assert messages.startswith("error: images that have two labels: 4")
    assert not (tmp_path / "runs").exists()
    (tmp_path / "t.csv").write_text("path,label\ndata/a/0.png,x\ndata/b/1.png,y\ndata/a/0.png,y\n")
    code, _, messages = command("train", "--data", "t.csv")
    assert code == 2
    assert "data/a/0.png" in messages


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("data.image_sice=16", "data.image_size"),
        ("data.channels=2", "data.channels = 2"),
        ("schedule.epochs=many", "schedule.epochs = 'many'"),
        ("method.decay=2", "method.decay = 2"),
        ("network.name=cnn14", "network.name = 'cnn14'"),
        ("seed", "key=value"),
    ],
)
def test_settings_are_checked_before_a_look_at_the_images(
    change: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(4):
        save_picture(tmp_path / "data" / "ab"[number % 2] / f"{number}.png", seed=number)
    code, output, messages = command("train", "--data", "data", "--set", change)
    assert (code, output) == (2, "")
    assert messages.startswith("error: ")
    assert message in messages
    assert messages.count("\n") == 1


def test_settings_of_a_network_that_may_be_chosen_can_be_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(4):
        save_picture(tmp_path / "data" / "ab"[number % 2] / f"{number}.png", seed=number)
    changes = (
        "data.image_size=16",
        "data.channels=1",
        "network.widths=[4, 8]",
        "schedule.epochs=1",
    )
    code, output, messages = command(
        "train", "--data", "data", *(word for change in changes for word in ("--set", change))
    )
    assert code == 0, messages
    assert "network.name = whitened-cnn: " in output
    assert "data.image_size = 16: " in output
    assert Run.open(tmp_path / "runs" / "data-0").read_recipe().network.model_dump() == {
        "name": "whitened-cnn",
        "batch_norm": "together",
        "widths": (4, 8),
        "mirror_at_test": False,
    }


def test_what_to_train_on_must_be_said(command: Command) -> None:
    code, _, messages = command("train")
    assert (code, messages.count("\n")) == (2, 1)
    assert "dualstudent recipes" in messages
    code, _, messages = command("train", "digits", "--target", "digits")
    assert code == 2
    assert "--data" in messages


@pytest.mark.parametrize("recipe", [(), ("digits",)])
def test_images_are_listed_and_decoded_once_and_then_never_again(
    recipe: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DUALSTUDENT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_NS_UNTIL_SETTLED", 0)
    calls: Counter[str] = Counter()

    def count(module: ModuleType, name: str) -> None:
        function = getattr(module, name)

        def counted(*arguments: Any, **keywords: Any) -> Any:
            calls[name] += 1
            return function(*arguments, **keywords)

        monkeypatch.setattr(module, name, counted)

    count(prepare_module, "list_images")
    count(prepare_module, "prepare_files")
    count(cache, "decode")
    count(cache, "read_header")
    for number in range(24):
        place = ("a", "b", "unlabeled")[number % 3]
        save_picture(tmp_path / "data" / place / f"{number}.png", seed=number)
    changes = ("schedule.epochs=1", "data.image_size=16", "batch.size=8", "batch.labeled=4")
    small = [word for change in changes for word in ("--set", change)]
    code, _, messages = command("train", *recipe, "--data", "data", *small)
    assert code == 0, messages
    expected = {"list_images": 1, "prepare_files": 1, "decode": 24}
    assert calls == expected | ({} if recipe else {"read_header": 24})
    calls.clear()
    code, _, messages = command("train", *recipe, "--data", "data", *small, "--out", "again")
    assert code == 0, messages
    assert calls == {"list_images": 1, "prepare_files": 1}
    calls.clear()
    (tmp_path / "data" / "unlabeled" / "2.png").rename(tmp_path / "data" / "a" / "2.png")
    code, _, messages = command("train", *recipe, "--data", "data", *small, "--out", "labeled")
    assert code == 0, messages
    assert calls["decode"] == 0
    for words in (["evaluate", "labeled"], ["report", "labeled"], ["label", "labeled", "-o", "l"]):
        command(*words)
    assert (calls["decode"], calls["list_images"]) == (0, 4)


def test_gray_images_are_trained_on_in_gray_however_they_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DUALSTUDENT_CACHE", str(tmp_path / "cache"))
    for mode in ("L", "RGB"):
        for number in range(8):
            path = save_picture(tmp_path / mode / "ab"[number % 2] / f"{number}.png", number)
            with Image.open(path) as image:
                gray = image.convert("L").convert(mode)
            gray.save(path)
        code, output, messages = command("train", "--data", mode, "--set", "schedule.epochs=1")
        assert code == 0, messages
        assert "data.channels = 1: " in output
    one, other = (Run.open(tmp_path / "runs" / f"{mode}-0") for mode in ("L", "RGB"))
    assert one.read_recipe().data.channels == 1
    assert one.read_fingerprint() == other.read_fingerprint()


def test_stopped_predictions_leave_nothing_behind(run: Run, place: Path) -> None:
    with pytest.raises(Interrupted, match="60 images"):
        write_predictions(
            run, [place / "digits" / "test"], place / "stop.csv", progress=StopsAtOnce()
        )
    assert not list(place.glob("stop.csv*"))


def test_the_page_names_files_counts_the_unreadable_and_refuses_changed_images(
    place: Path, command: Command
) -> None:
    folder = write_digits(place / "paged", labeled=10, test=0)
    (folder / "1" / "broken.png").write_text("no image")
    code, _, messages = command("train", "--data", "paged", "--out", "paged-run", *QUICK)
    assert code == 0, messages
    run = Run.open(place / "paged-run")
    page = Page(run.page.read_text("utf-8"))
    assert any("1 image could not be read" in text for text in page.texts["p"])
    assert HOSTILE.replace("\n", "\\n") in page.texts["th"]
    files = [text for text in page.texts["p"] if text.endswith(".png")]
    assert files
    assert {(folder / file.replace("\\n", "\n")).is_file() for file in files} == {True}
    assert any("temperature" in text for text in page.texts["p"])  # 20 validation images

    code, _, messages = command("report", "paged-run")
    assert code == 0, messages
    save_picture(next(folder.glob("2/*.png")), seed=7)
    before = run.page.read_bytes()
    code, _, messages = command("report", "paged-run")
    assert code == 2
    assert messages.startswith("error: paged-run: ")
    assert run.page.read_bytes() == before


def test_copies_of_labeled_images_and_lost_ones_do_not_confuse_a_small_folder(
    place: Path, command: Command
) -> None:
    """With so few images a batch takes all of them: what is held out must not be counted on."""
    folder = write_digits(place / "few", labeled=10, unlabeled=20, test=0)
    for number, image in enumerate(sorted(folder.glob("[0-9]/*.png"))[:8]):
        shutil.copy(image, folder / "unlabeled" / f"copy{number}.png")
    code, _, messages = command(
        "train", "--data", "few", "--out", "runs/few", "--set", "schedule.epochs=1"
    )
    assert code == 0, messages
    next((folder / "unlabeled").glob("copy*")).unlink()
    code, _, messages = command("evaluate", "runs/few")
    assert code == 2
    assert messages.startswith("error: runs/few: ")
