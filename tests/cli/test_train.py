"""Training by a recipe, and the commands that use the run."""

import json
import re
from pathlib import Path

import pytest

from dualstudent import Recipe, Run, UserError, load_recipe
from dualstudent.cli.arguments import parse_duration
from dualstudent.training import forecast
from dualstudent.training.budget import Budget
from dualstudent.training.trunk import TrunkTooSlow
from dualstudent.training.trunk_choice import TrunkTrial
from tests.support.command import Command
from tests.support.digit_files import write_digits
from tests.support.recipes import SMALL

SMALL_CHANGES = [part for change in SMALL for part in ("--set", change)]
UNTIMED = [  # without a length
    part for change in SMALL if "schedule" not in change for part in ("--set", change)
]

CYCLES = ("--set", "schedule.cycle_from=18", "--set", "schedule.cycle_length=2")


@pytest.fixture
def _half_a_second_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are measured to take half a second, and all else no time."""
    monkeypatch.setattr(forecast, "measure_step", lambda *_: 0.5)
    monkeypatch.setattr(forecast, "measure_epoch_end", lambda *_: 0.0)
    monkeypatch.setattr(forecast, "measure_evaluation", lambda *_: 0.0)
    monkeypatch.setattr(Budget, "left", property(lambda self: self.seconds))


def test_train_evaluate_and_export_show_the_same_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    code, trained, messages = command("train", "digits", *SMALL_CHANGES)
    assert (code, messages) == (0, "")
    run = tmp_path / "runs" / "digits-0"
    result = json.loads((run / "result.json").read_text())
    _, evaluated, _ = command("evaluate", "runs/digits-0")
    for figures in result["networks"].values():
        for output in (trained, evaluated):
            assert f"{figures['error']:.2f} %" in output
            assert f"{figures['stable_share']:.2f} %" in output
    assert (run / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "runs/digits-0/report.html" in trained
    assert f"{result['error']:.2f}\u00a0%" in (run / "report.html").read_text()
    export = ("export", "runs/digits-0", "--to", "safetensors", "--network", "student2")
    code, exported, messages = command(*export)
    assert (code, messages) == (0, "")
    assert exported.startswith("runs/digits-0/student2.safetensors: ")
    assert f"{result['networks']['student2']['error']:.2f} %" in exported
    code, _, messages = command(*export)
    assert (code, messages.count("\n")) == (2, 1)
    assert "student2.safetensors" in messages


@pytest.mark.filterwarnings("default::dualstudent.errors.NotKeptWarning")
def test_what_another_method_does_not_keep_is_one_line(tmp_path: Path, command: Command) -> None:
    changes = [*SMALL_CHANGES, "--set", "method.name=mean-teacher", "--set", "method.decay=0.99"]
    code, _, messages = command("train", "digits", *changes, "--out", tmp_path / "run")
    assert (code, messages.count("\n")) == (0, 1)
    assert messages.startswith("warning: settings: method.name = 'mean-teacher'")
    assert "consistency_weight = 10, stabilization_weight = 100" in messages


@pytest.mark.usefixtures("_half_a_second_each")
def test_a_budget_is_a_number_of_epochs_in_the_recipe(tmp_path: Path, command: Command) -> None:
    """An epoch has 1442 − 50 unlabeled images, 48 in a batch: 29 steps, 14.5 s."""
    out = tmp_path / "run"
    code, _, messages = command("train", "digits", *UNTIMED, "--budget", "0.5min", "--out", out)
    assert (code, messages) == (0, "")
    run = Run.open(out)
    schedule = load_recipe(run.recipe).schedule
    assert schedule.epochs == 2
    assert schedule.rampup_epochs == 0.5  # 5 of 20 epochs in the recipe
    assert [record["epoch"] for record in run.read_metrics()] == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--budget", "17s", "--no-baseline"), "0:00:17 here\n"),
        (
            ("--budget", "36s"),
            "0:00:36 here, with the training on labels alone and cross-validation\n",
        ),
    ],
)
@pytest.mark.usefixtures("_half_a_second_each")
def test_a_budget_for_own_images_chooses_the_other_settings_to_fit(
    arguments: tuple[str, ...],
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: Command,
) -> None:
    """120 unlabeled images in batches of 12: 10 steps, 5 s an epoch, half of that on labels alone.

    A third of both more is spent where labels are hidden: 10 to 11 s in all.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DUALSTUDENT_CACHE", str(tmp_path / "cache"))
    write_digits(tmp_path / "images", labeled=4, unlabeled=120, test=10)
    batch = ("--set", "batch.size=16", "--set", "batch.labeled=4")
    code, output, messages = command("train", "--data", "images", *batch, *arguments)
    assert code == 0, messages
    assert f"schedule.epochs = 3: as many as fit into {why}" in output
    schedule = Run.open(tmp_path / "runs" / "images-0").read_recipe().schedule
    assert (schedule.epochs, schedule.rampup_epochs, schedule.warmup_epochs) == (3, 0.75, 0.75)


@pytest.mark.usefixtures("_half_a_second_each")
def test_a_short_budget_counts_the_whole_epochs_of_cross_validation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    """Two epochs take 10 s, labels alone 5 s, and three times one epoch of each 30 s.

    By the ratio of a long training, whose parts take as long as itself, two would fit into 30 s.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DUALSTUDENT_CACHE", str(tmp_path / "cache"))
    write_digits(tmp_path / "images", labeled=4, unlabeled=120, test=0)
    words = ["train", "--data", "images", "--set", "batch.size=16", "--set", "batch.labeled=4"]
    code, _, messages = command(*words, "--budget", "38s")
    assert code == 2
    assert "too short for one epoch of all trainings" in messages
    code, output, messages = command(*words, "--budget", "52s")
    assert code == 0, messages
    assert "schedule.epochs = 2: as many as fit" in output
    assert "about 30 s more in short trainings" in output


@pytest.mark.usefixtures("_half_a_second_each")
def test_a_budget_shortens_a_training_on_features_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    """10 steps an epoch; heads on features are trained for no more than 800 steps."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DUALSTUDENT_CACHE", str(tmp_path / "cache"))
    write_digits(tmp_path / "images", labeled=4, unlabeled=120, test=10)
    settings = ("batch.size=16", "batch.labeled=4", "data.image_size=32", "trunk.weights=random")
    trunk = ("trunk.name=efficientnet-lite0", "trunk.image_size=32")
    words = ["train", "--data", "images", "--no-baseline"]
    words += [word for setting in (*settings, *trunk) for word in ("--set", setting)]
    code, output, messages = command(*words, "--budget", "17s")
    assert code == 0, messages
    assert "schedule.epochs = 3: as many as fit into 0:00:17 here, with features\n" in output


@pytest.mark.usefixtures("_half_a_second_each")
def test_a_budget_too_short_for_features_leaves_the_trunk_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    tried = []

    def take_too_long(seconds: float, recipe: Recipe, *_: object) -> None:
        assert recipe.trunk is not None
        tried.append(recipe.trunk.name)
        raise TrunkTooSlow("too slow")

    trial = TrunkTrial("a trunk", features=0.0, patches=50.0)
    monkeypatch.setattr("dualstudent.training.trunk_choice.try_trunk", lambda *_: trial)
    monkeypatch.setattr("dualstudent.cli.own_images.use_trunk_within", take_too_long)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DUALSTUDENT_CACHE", str(tmp_path / "cache"))
    write_digits(tmp_path / "images", labeled=5, unlabeled=120, test=10)
    settings = ("batch.size=16", "batch.labeled=4", "data.image_size=32")
    words = ["train", "--data", "images", "--no-baseline", "--budget", "1min"]
    words += [word for setting in settings for word in ("--set", setting)]
    code, output, messages = command(*words)
    assert code == 0, messages
    assert tried == ["efficientnet-lite0+2", "efficientnet-lite0"]
    assert "the features of a trunk take too long for the budget" in output
    assert Run.open(tmp_path / "runs" / "images-0").read_recipe().trunk is None
    own = ("--set", "trunk.name=efficientnet-lite0", "--out", "own")
    code, _, messages = command(*words, *own)
    assert (code, messages.splitlines()[-1]) == (2, "error: too slow")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--budget", "13s"), "too short for one epoch, which takes about 15 s"),
        (("--budget", "1h", "--set", "schedule.epochs=3"), "schedule.epochs; give one of the two"),
        (("--budget", "1h", "--set", "stages=[{name = 'all'}]"), "without stages"),
        (("--budget", "soon"), "--budget 'soon': write a duration such as 90s, 10min or 2h"),
        (("--budget", "30s", *CYCLES), "cycle_from + cycle_length = 20"),
        (("--no-baseline",), "--no-baseline is for --data without a recipe"),
    ],
)
@pytest.mark.usefixtures("_half_a_second_each")
def test_arguments_that_make_no_sense_are_refused_before_anything_is_written(
    arguments: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: Command,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, messages = command("train", "digits", *UNTIMED, *arguments)
    assert (code, messages.count("\n")) == (2, 1)
    assert messages.startswith("error: ")
    assert message in messages
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10min", 600), (" 1.5 h ", 5400), ("0.5s", 0.5)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "min", "0s", "0.0h", "-1h", "1d", "1h30min", "1,5h"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=re.escape(f"--budget {text!r}: write a duration")):
        parse_duration(text)


def test_a_run_cannot_be_in_a_file(tmp_path: Path, command: Command) -> None:
    file = tmp_path / "table.csv"
    file.touch()
    code, _, messages = command("train", "digits", "--out", file / "run")
    assert (code, messages.count("\n")) == (2, 1)
    assert messages.startswith(f"error: {file} is a file")


@pytest.mark.parametrize("out", [".", ""])
def test_the_folder_one_is_in_is_not_replaced_by_a_run(
    out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, messages = command("train", "digits", "--out", out)
    assert (code, messages.count("\n")) == (2, 1)
    assert "is the folder you are in" in messages
    assert not any(tmp_path.iterdir())
