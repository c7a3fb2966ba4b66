"""Wrong command lines: exit code 2, one line that names what would be right, nothing written."""

from pathlib import Path

import pytest

from tests.support.command import Command

RUNS = ("resume", "evaluate", "report", "verify")
NUMBERS = ("seed", "schedule.epochs", "batch.size", "data.labels", "optimizer.learning_rate")
MISTAKES: list[tuple[str, str]] = [
    # Commands and options that do not exist, or miss something.
    ("trian", "'train'"),
    ("predcit", "'predict'"),
    ("nothing-like-it", "--help"),
    ("--versoin", "--version"),
    *((f"{command} --nonsense", "--help") for command in ("train", "compare", "check", "demo")),
    *((f"{command} --nonsense run", "--help") for command in (*RUNS, "export", "label")),
    *((command, "RUN") for command in (*RUNS, "export", "label", "predict")),
    *((f"{command} one two", "two") for command in ("resume", "evaluate", "verify", "methods")),
    ("train --ouput run", "--out"),
    ("train digits --sett seed=1", "--set"),
    ("train digits --set", "--set"),
    ("train digits --budget", "--budget"),
    ("train digits extra", "extra"),
    ("check", "data"),
    ("recipes shwo", "'show'"),
    ("recipes show", "name"),
    ("export run --to word", "onnx"),
    ("export run", "--to"),
    ("predict run", "paths"),
    ("predict run image.png --probabilities", "-o FILE.csv"),
    ("label run", "--output"),
    ("label run -o a.csv --precision 2", "--precision"),
    ("label run -o a.csv --precision high", "--precision"),
    ("demo --seeds 0", "--seeds"),
    ("demo --seeds many", "--seeds"),
    ("doctor --steps 0", "--steps"),
    ("reproduce table1 --budget tiny", "'cpu'"),
    ("reproduce table1 --seeds 0", "--seeds"),
    ("compare demo --equal luck", "'steps'"),
    ("check . --image-size 0", "--image-size"),
    # Runs, recipes, data and methods that do not exist.
    *((f"{command} nowhere", "nowhere does not exist") for command in RUNS),
    *((f"{command} .", "run.json") for command in RUNS),
    ("export nowhere --to onnx", "nowhere does not exist"),
    ("predict nowhere image.png -o a.csv", "nowhere does not exist"),
    ("label nowhere -o a.csv", "nowhere does not exist"),
    ("train", "--data"),
    ("train dmo", "'demo'"),
    ("train nothing-like-it", "dualstudent recipes"),
    ("train .", "--data ."),
    ("train recipe.toml", "recipe.toml"),
    ("train images.csv", "--data images.csv"),
    ("train --target there", "--data"),
    ("train --data nowhere", "nowhere"),
    ("train --data .", "folder of images per class"),
    ("check nowhere", "nowhere"),
    ("check nowhere.csv", "nowhere.csv"),
    ("methods mean-techer", "'mean-teacher'"),
    ("recipes show dmo", "'demo'"),
    ("doctor dmo", "'demo'"),
    ("compare dmo --methods vat", "'demo'"),
    ("compare demo --methods vta", "'vat'"),
    ("compare demo --methods vat --seeds 0", "seeds"),
    ("reproduce", "--list"),
    ("reproduce table7", "table1"),
    ("reproduce table1 --only XYZ", "'XYZ'"),
    # Settings.
    *((f"train digits --set {key}=many", key) for key in NUMBERS),
    *((f"train digits --set {key}=-1", key) for key in NUMBERS),
    ("train digits --set seed", "key=value"),
    ("train digits --set =1", "key=value"),
    ("train digits --set data.lables=20", "'data.labels'"),
    ("train digits --set method.nam=pi", "'method.name'"),
    ("train digits --set method.name=pj", "'pi'"),
    ("train digits --set network.name=cnn", "digits-cnn"),
    ("train digits --set data.labels=55", "multiple of 10"),
    ("train digits --set data.source=minst", "'mnist'"),
    ("train digits --set batch.labeled=500", "batch"),
    ("train digits --set optimizer.name=sdg", "'sgd'"),
    ("train digits --set schedule.name=cosin", "'cosine'"),
    ("train digits --set transforms.weak.flp=true", "transforms.weak.flip"),
    ("train digits --set transforms.weak.noise=-0.1", "transforms.weak.noise"),
    ("train digits --set device.accelerator=gpuu", "device.accelerator"),
    ("train digits --budget soon", "10min"),
    ("train digits --budget 0s", "10min"),
    ("train digits --budget 1h --set schedule.epochs=3", "one of the two"),
    ("train digits --out .", "new one"),
]


def test_there_are_enough_of_them() -> None:
    assert len(dict(MISTAKES)) >= 100


@pytest.mark.parametrize(("arguments", "named"), MISTAKES, ids=[line for line, _ in MISTAKES])
def test_a_mistake_is_one_line_that_names_what_is_right(
    arguments: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, shown = command(*arguments.split())
    assert code == 2
    assert shown.startswith("error: ")
    assert shown.count("\n") == 1
    assert r"\n" not in shown
    assert named.lower() in shown.lower()  # typer writes names of arguments in either way
    assert not any(tmp_path.iterdir())
