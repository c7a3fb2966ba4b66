"""Was it worth it? Own images with their unlabeled ones, beside the labels alone."""

import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from dualstudent import Predictor, PreparedData, Recipe, Run, prepare, train
from dualstudent import worth as worth_module
from dualstudent.errors import UserError
from dualstudent.export import export_run
from dualstudent.recipes.reading import validate
from dualstudent.signals import Interrupted
from dualstudent.training.crossvalidation import (
    LABELS_ALONE,
    CrossValidation,
    plan_folds,
    shorten,
)
from dualstudent.training.gain import Gain, measure_gain, read_gain
from dualstudent.training.inference import Predictions, predict
from dualstudent.training.measured import read_measured
from dualstudent.training.model import load_trained
from dualstudent.training.trainer import LossNotFinite, Trainer
from dualstudent.worth import (
    compare,
    is_unfinished,
    make_opponent,
    refit_on_all_labels,
    should_refit,
    train_on_labels,
)
from tests.support.command import Command
from tests.support.csv_rows import rows_of
from tests.support.digit_files import write_digits
from tests.support.html_page import Page
from tests.support.runs import RaisesSignalAt, assert_equal_runs

CHANGES = ("schedule.epochs=2", "batch.size=16", "batch.labeled=4", "network.widths=[4, 8]")
QUICK = [word for change in CHANGES for word in ("--set", change)]  # 2 epochs of 5 steps
ADDED = ("gain", "cross_validation")  # to a result by comparisons
pytestmark = pytest.mark.usefixtures("at_place")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("worth")


def make_run(place: Path, command: Command, name: str, labeled: int, test: int) -> Run:
    """A run by the recipe chosen for some digits; made once."""
    folder = place / "runs" / f"{name}-0"
    if not folder.exists():
        write_digits(place / name, labeled, unlabeled=60, test=test)
        code, output, messages = command("train", "--data", name, *QUICK)
        assert code == 0, messages
        (place / f"{name}.txt").write_text(output)
    return Run.open(folder)


@pytest.fixture
def tested(place: Path, command: Command) -> Run:
    return make_run(place, command, "tested", labeled=4, test=40)


@pytest.fixture
def validated(place: Path, command: Command) -> Run:
    """Two of ten labels a class are held out."""
    return make_run(place, command, "validated", labeled=10, test=0)


@pytest.fixture
def labels_used(validated: Run, tmp_path: Path) -> Run:
    """The same after the validation part has chosen the labels alone, not trained on all yet."""
    run = Run(Path(shutil.copytree(validated.folder, tmp_path / "chosen")))
    shutil.rmtree(run.refit.folder)
    result = run.read_result()
    result["gain"] |= {"error": 50.0, "labels_only_error": 40.0, "labels_only_used": True}
    run.write_result(result)
    return run


def predict_labels(trainer: Trainer) -> Tensor:
    data, seed = trainer.data, trainer.recipe.seed
    everything = torch.arange(len(data.test_labels))
    found = Predictions.join(predict(trainer.method, data.test, everything, seed, "cpu"))
    return found.labels[:, 0]


def measure_with(truth: Tensor, ours: Trainer, labels_only: Trainer) -> Gain:
    for trainer in (ours, labels_only):
        trainer.data = replace(trainer.data, test_labels=truth)
    return measure_gain(ours, labels_only)


def test_the_opponent_differs_only_in_how_it_learns(tested: Run) -> None:
    ours, theirs = tested.read_recipe(), tested.labels_only.read_recipe()
    assert (theirs.method.name, theirs.method.model_dump()["view"]) == ("supervised", "strong")
    assert theirs.ema is not None
    assert theirs.ema.decay == pytest.approx(1 / 3)  # 5 steps: an average over the last few
    assert (theirs.schedule.epochs, theirs.schedule.warmup_epochs) == (
        1,
        0.5,
    )  # half of 2, all of 0.5
    same = {"method": ours.method, "schedule": ours.schedule, "ema": None}
    assert theirs.model_copy(update=same) == ours
    assert tested.read_fingerprint() == tested.labels_only.read_fingerprint()
    assert (tested.labels_only.read_result()["steps"], tested.read_result()["steps"]) == (5, 10)


def test_the_gain_is_that_of_the_predictions(tested: Run, place: Path) -> None:
    wrong = []
    for run in (tested, tested.labels_only):
        found = Predictor(run).predict(sorted((place / "tested" / "test").glob("*/*")))
        wrong.append(
            [
                100.0 * (Predictor(run).classes[p.argmax()] != path.parent.name)
                for chunk in found
                for path, p in zip(chunk.paths, chunk.probabilities, strict=True)
            ]
        )
    gain = read_gain(tested.read_result())
    assert gain is not None
    assert (gain.part, gain.images) == ("test", 40)
    ours, theirs = np.array(wrong)
    assert (gain.error, gain.labels_only_error) == pytest.approx((ours.mean(), theirs.mean()))
    assert gain.error == pytest.approx(tested.read_result()["error"])
    most = max(len(list(each.iterdir())) for each in (place / "tested" / "test").iterdir())
    assert gain.guess_error == pytest.approx(100 * (1 - most / 40))
    drawn = np.random.default_rng(1).integers(40, size=(20_000, 40))
    expected = np.quantile((theirs - ours)[drawn].mean(axis=1), (0.025, 0.975))
    assert gain.interval == pytest.approx(expected, abs=2.6)  # one image is 2.5 points


def test_the_last_lines_and_the_page_say_it(tested: Run, place: Path) -> None:
    gain = read_gain(tested.read_result())
    assert gain is not None
    output = (place / "tested.txt").read_text()
    assert "more on the labels alone, to measure what the unlabeled images gain; " in output
    for sentence in gain.describe(Path("runs/tested-0/labels-only")):
        assert f"\n{sentence}\n" in output
    page = Page(tested.page.read_text("utf-8"))
    assert " ".join(gain.describe()) in page.texts["p"]


def test_test_labels_never_choose_the_model(tested: Run) -> None:
    """Not even if labels alone were right about every test image."""
    ours, theirs = load_trained(tested), load_trained(tested.labels_only)
    truth = predict_labels(theirs)
    assert not torch.equal(truth, predict_labels(ours))
    shuffled = [truth[torch.randperm(len(truth), generator=torch.manual_seed(s))] for s in (0, 1)]
    gains = [measure_with(each, ours, theirs) for each in (truth, *shuffled)]
    assert gains[0].labels_only_error == 0 < gains[0].error
    assert {(gain.labels_only_used, gain.chosen_on) for gain in gains} == {(False, None)}


def test_validation_labels_choose_the_model(validated: Run) -> None:
    ours, theirs = load_trained(validated), load_trained(validated.labels_only)
    for better, used in ((theirs, True), (ours, False)):
        gain = measure_with(predict_labels(better), ours, theirs)
        assert (gain.labels_only_used, gain.chosen_on) == (used, "validation")
        assert (gain.part, gain.images) == ("validation", 20)


def test_commands_use_the_model_that_was_chosen(
    labels_used: Run, validated: Run, place: Path, tmp_path: Path, command: Command
) -> None:
    error = validated.labels_only.read_result()["error"]
    by = f"student of {labels_used.labels_only.folder}, {error:.2f} % validation error"
    images, files = place / "validated" / "1", ("chosen.csv", "alone.csv", "both.csv")
    for run, file in zip((labels_used, validated.labels_only, validated), files, strict=True):
        code, output, messages = command("predict", run.folder, images, "-o", tmp_path / file)
        assert code == 0, messages
        assert (by in output) == (run == labels_used)
    chosen, alone, both = (rows_of(tmp_path / file) for file in files)
    assert chosen == alone != both
    code, output, messages = command("export", labels_used.folder, "--to", "safetensors")
    assert code == 0, messages
    assert f"{labels_used.folder}/student.safetensors: {by}" in output
    code, output, messages = command("label", labels_used.folder, "-o", tmp_path / "labels.csv")
    assert code == 0, messages
    assert f"predicted by {labels_used.labels_only.folder}" in output
    code, _, messages = command("report", labels_used.folder)
    assert code == 0, messages
    page = Page(labels_used.page.read_text("utf-8"))
    assert any("supervised with whitened-cnn, from 80 labels alone" in p for p in page.texts["p"])
    assert any("label and the report use the model from the" in p for p in page.texts["p"])


def test_all_labels_are_learned_in_the_end(
    validated: Run, place: Path, tmp_path: Path, command: Command
) -> None:
    recipe = validated.read_recipe()
    everything = recipe.data.model_copy(update={"validation": 0.0})
    expected = train(recipe.model_copy(update={"data": everything}), tmp_path / "expected")
    assert_equal_runs(validated.refit, expected)
    known = [len(load_trained(run).data.labeled) for run in (validated, validated.refit)]
    assert known == [80, 100]
    said = (place / "validated.txt").read_text()
    assert "on all labels, also those that measured this one: runs/validated-0/refit" in said
    assert "trained once more with all labels" in " ".join(
        Page(validated.page.read_text("utf-8")).texts["p"]
    )
    for run, file in ((validated, "ours.csv"), (expected, "expected.csv")):
        words = ("predict", run.folder, place / "validated" / "1", "-o", tmp_path / file)
        assert command(*words)[0] == 0
    assert rows_of(tmp_path / "ours.csv") == rows_of(tmp_path / "expected.csv")
    card = export_run(validated, "safetensors", tmp_path / "model.safetensors").card
    assert card.validation_error == validated.read_result()["error"]
    assert "validation = 0.0" in card.recipe


def test_training_on_all_labels_continues_exactly(
    validated: Run, tmp_path: Path, command: Command
) -> None:
    run = Run(Path(shutil.copytree(validated.folder, tmp_path / "run")))
    shutil.rmtree(run.refit.folder)
    assert run.deployed == run
    with pytest.raises(Interrupted, match=f"step 3 on all labels; .* resume {run.folder}$"):
        refit_on_all_labels(run, RaisesSignalAt(3))
    assert is_unfinished(run)
    assert run.deployed == run
    code, output, messages = command("resume", run.folder)
    assert code == 0, messages
    assert "finished already" not in output
    assert_equal_runs(run.refit, validated.refit)
    assert run.deployed == run.refit
    assert "finished already" in command("resume", run.folder)[1]
    code, output, messages = command("verify", run.folder)
    assert code == 0, messages
    assert "refit/" in output


def test_all_labels_are_learned_by_what_was_chosen(labels_used: Run) -> None:
    refit_on_all_labels(labels_used)
    assert labels_used.deployed == labels_used.refit
    assert labels_used.refit.read_recipe().method.name == "supervised"


def test_changed_images_are_not_learned(validated: Run, place: Path, tmp_path: Path) -> None:
    images = Path(shutil.copytree(place / "validated", tmp_path / "validated"))
    recipe = validated.recipe.read_text().replace(str(place / "validated"), str(images))
    run = train(validate(tomllib.loads(recipe), "the copy"), tmp_path / "run", refit=True)
    next((images / "unlabeled").iterdir()).rename(images / "1" / "one-more.png")
    with pytest.raises(UserError, match="are not those the run began with"):
        refit_on_all_labels(run)
    assert not run.refit.folder.exists()


def test_only_a_run_that_asked_for_it_is_replaced(
    tested: Run, validated: Run, tmp_path: Path
) -> None:
    run = Run(Path(shutil.copytree(tested.folder, tmp_path / "run")))
    shutil.copytree(validated.refit.folder, run.refit.folder)
    assert run.deployed == run
    with pytest.raises(UserError, match="no labels are held out"):
        train(tested.read_recipe(), tmp_path / "other", refit=True)


def test_a_second_training_that_diverges_costs_no_result(
    validated: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(Path(shutil.copytree(validated.folder, tmp_path / "run")))
    shutil.rmtree(run.refit.folder)

    def diverge(*_: object) -> None:
        raise LossNotFinite("the loss is no longer finite")

    monkeypatch.setattr(worth_module, "train_or_resume", diverge)
    with pytest.warns(UserWarning, match="not trained on all labels: the loss is no longer"):
        refit_on_all_labels(run)
    assert not is_unfinished(run)
    assert not run.wants_refit
    assert run.deployed == run


def test_many_labels_or_a_test_part_need_no_second_training(tested: Run, validated: Run) -> None:
    for run, expected in ((tested, False), (validated, True)):
        ours = load_trained(run)
        assert should_refit(ours.recipe, ours.data) == expected
        assert run.refit.folder.exists() == expected
    few = ours.recipe.data.model_copy(update={"labels": 50})
    assert not should_refit(ours.recipe.model_copy(update={"data": few}), ours.data)
    ours.data = replace(ours.data, labeled=torch.arange(980))  # and 20 that are held out
    assert not should_refit(ours.recipe, ours.data)


@pytest.mark.parametrize("in_opponent", [False, True])
def test_resume_continues_both_exactly(
    in_opponent: bool, tested: Run, tmp_path: Path, command: Command
) -> None:
    recipes = tested.read_recipe(), tested.labels_only.read_recipe()
    folder = tmp_path / "run"
    if in_opponent:
        run = train(recipes[0], folder, opponent=recipes[1])
        with pytest.raises(Interrupted, match=f"step 3 on labels alone; .* resume {folder}$"):
            train_on_labels(run, RaisesSignalAt(3))
        assert "gain" not in run.read_result()
    else:
        with pytest.raises(Interrupted, match=f"resume {folder}$"):
            train(recipes[0], folder, RaisesSignalAt(3), opponent=recipes[1])
    code, output, messages = command("resume", folder)
    assert code == 0, messages
    assert "finished already" not in output
    assert "The unlabeled images " in output
    run = Run.open(folder)
    assert_equal_runs(run, tested)
    assert_equal_runs(run.labels_only, tested.labels_only)
    assert run.read_result()["gain"] == tested.read_result()["gain"]
    assert "finished already" in command("resume", folder)[1]


def test_there_is_no_opponent_without_something_to_compare(
    tested: Run, place: Path, command: Command
) -> None:
    write_digits(place / "single", labeled=1, unlabeled=60, test=0)
    write_digits(place / "full", labeled=4, unlabeled=0, test=20)
    full = ("train", "--data", "full", "--set", "batch.labeled=16")
    for words, says in (
        (
            ("train", "--data", "single"),
            "gain cannot be measured: there are no test or validation images and no two labels",
        ),
        (full, ""),
        (("train", "--data", "tested", "--no-baseline"), ""),
        (("train", "--data", "tested", "--set", "method.name=supervised"), ""),
    ):
        folder = place / "alone" / str(len(list(place.glob("alone/*"))))
        code, output, messages = command(*words[:1], *QUICK, *words[1:], "--out", folder)
        assert code == 0, messages
        assert (says or "report: ") in output
        assert "labels alone" not in output
        assert not Run.open(folder).labels_only.folder.exists()
    recipe = tested.read_recipe()
    data = prepare(recipe.data, recipe.seed, recipe.transforms, recipe.normalization)
    of_source = recipe.data.model_copy(update={"target_path": place, "validation": 0.2})
    assert make_opponent(recipe, data) is not None
    assert make_opponent(recipe.model_copy(update={"data": of_source}), data) is None


def test_labels_that_are_too_few_to_spare_are_hidden_in_turn(
    place: Path, command: Command, tmp_path: Path
) -> None:
    run = make_run(place, command, "few", labeled=3, test=0)
    result = run.read_result()
    gain, measured = read_gain(result), read_measured(result)
    assert result["error"] is None
    assert gain is not None
    assert measured is not None
    assert (gain.part, gain.images, gain.chosen_on) == ("cross-validation", 30, "cross-validation")
    assert (measured.images, measured.folds, measured.shorter) == (30, 3, 2)  # 1 of 2 epochs
    errors = {name: row.error for name, row in measured.rows.items()}
    assert errors == {"fixmatch": gain.error, "labels alone": gain.labels_only_error}
    output = (place / "few.txt").read_text()
    assert "in short trainings from which some labels are hidden, to measure the accuracy" in output
    assert "from resampling 30 labels, each hidden once" in output
    page = Page(run.page.read_text("utf-8"))
    assert " ".join(measured.describe()) in page.texts["p"]
    copied = Run(Path(shutil.copytree(run.folder, tmp_path / "run")))
    copied.write_result({key: result[key] for key in result if key not in ADDED})
    code, output, messages = command("resume", copied.folder)
    assert code == 0, messages
    assert copied.read_result() == result
    assert not copied.hidden_label_answers.exists()
    copied.write_result(result | {"gain": result["gain"] | {"labels_only_used": True}})
    assert command("report", copied.folder)[0] == 0
    right = f"labels alone predicts {100 - gain.labels_only_error:.2f}"
    assert any(right in text for text in Page(copied.page.read_text("utf-8")).texts["p"])


def test_labels_choose_where_test_images_must_not(
    tested: Run, place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One of three parts of the labels is hidden from both, and only that decides."""
    assert (
        "some labels are hidden, to choose the better model" in (place / "tested.txt").read_text()
    )
    run = Run(Path(shutil.copytree(tested.folder, tmp_path / "run")))
    result = run.read_result()
    run.write_result({key: result[key] for key in result if key not in ADDED})
    asked = []

    def lose_all(data: PreparedData, recipes: Mapping[str, Recipe], *_: object) -> CrossValidation:
        asked.append({name: recipe.epochs for name, recipe in recipes.items()})
        errors = {"fixmatch": np.ones(13), LABELS_ALONE: np.zeros(13)}
        return CrossValidation(errors, parts=1, never_hidden=(), epochs=1)

    monkeypatch.setattr(worth_module, "compare_by_folds", lose_all)
    compare(run)
    assert asked == [{"fixmatch": 1, LABELS_ALONE: 1}]  # a third of 2, and half of that
    gain = read_gain(run.read_result())
    before = read_gain(result)
    assert gain is not None
    assert before is not None
    assert (gain.labels_only_used, gain.chosen_on) == (True, "cross-validation")
    assert replace(gain, labels_only_used=False) == replace(before, labels_only_used=False)
    assert run.used == run.labels_only
    assert "In cross-validation over the labels it was clearly worse" in gain.describe()[-1]


@pytest.mark.parametrize("rate", [None, 0.0123])
def test_short_trainings_on_labels_alone_are_those_of_the_opponent(
    rate: float | None, tested: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, opponent = tested.read_recipe(), tested.labels_only.read_recipe()
    if rate is not None:
        rated = opponent.optimizer.model_copy(update={"learning_rate": rate})
        opponent = opponent.model_copy(update={"optimizer": rated})
    run = train(ours, tmp_path / "run", opponent=opponent)
    train_on_labels(run)
    asked: list[Recipe] = []
    refuse = UserError("stop here")

    def note(data: PreparedData, recipes: Mapping[str, Recipe], *_: object) -> CrossValidation:
        asked.append(recipes[LABELS_ALONE])
        raise refuse

    monkeypatch.setattr(worth_module, "compare_by_folds", note)
    with pytest.warns(UserWarning, match="not cross-validated: stop here"):
        compare(run)
    assert run.read_result()["gain"]["chosen_on"] != "cross-validation"
    data = prepare(ours.data, ours.seed, ours.transforms, ours.normalization)
    expected = make_opponent(shorten(ours, plan_folds(ours, data)), data)
    assert expected is not None
    if rate is None:
        assert asked == [expected]
    else:
        assert (asked[0].optimizer.learning_rate, asked[0].epochs) == (rate, expected.epochs)


def test_cross_validation_tells_its_progress_from_one_beginning(
    tested: Run, tmp_path: Path
) -> None:
    run = Run(Path(shutil.copytree(tested.folder, tmp_path / "run")))
    result = run.read_result()
    run.write_result({key: result[key] for key in result if key not in ADDED})
    told = []

    class Told:
        def on_start(self, step: int, total: int) -> None:
            told.append(("start", step, total))

        def on_step(self, step: int) -> None:
            told.append(("step", step, 0))

    compare(run, Told())
    assert [each for each in told if each[0] == "start"] == [("start", 0, 2)] == told[:1]
    assert told[-1] == ("step", 2, 0)


def test_an_opponent_that_diverges_costs_no_result(
    tested: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(Path(shutil.copytree(tested.folder, tmp_path / "run")))
    result = run.read_result()
    del result["gain"]
    run.write_result(result)

    def diverge(*_: object) -> None:
        raise LossNotFinite("the loss is no longer finite")

    monkeypatch.setattr(worth_module, "resume", diverge)
    with pytest.warns(UserWarning, match="not compared with labels alone: the loss is no longer"):
        train_on_labels(run)
    assert run.read_result() == result | {"gain": None}
    assert not is_unfinished(run)  # it is not tried again and again
