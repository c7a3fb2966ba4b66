import shutil
from pathlib import Path

import pytest

from dualstudent import Run
from dualstudent.sealed import write_sealed
from tests.support.command import Command
from tests.support.runs import change_recipe


@pytest.fixture
def run(small_run: Run, tmp_path: Path) -> Run:
    return Run(Path(shutil.copytree(small_run.folder, tmp_path / "run")))


def test_a_whole_run(run: Run, command: Command) -> None:
    before = {path.name: path.read_bytes() for path in run.folder.iterdir()}
    code, shown, _ = command("verify", run.folder)
    assert code == 0
    assert {line.split()[1].rstrip(":") for line in shown.splitlines()} == {
        *("run.json", "recipe.toml", "split.json", "checkpoint.safetensors", "result.json"),
        *("metrics.jsonl", "model.safetensors", "versions", "data"),
    }
    assert all(line.startswith("ok ") for line in shown.splitlines())
    assert {path.name: path.read_bytes() for path in run.folder.iterdir()} == before


@pytest.mark.parametrize(
    "name",
    [
        *("recipe.toml", "split.json", "checkpoint.safetensors", "metrics.jsonl"),
        *("result.json", "model.safetensors"),
    ],
)
def test_every_damaged_file_is_named(name: str, run: Run, command: Command) -> None:
    content = bytearray((run.folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (run.folder / name).write_bytes(content)
    code, shown, messages = command("verify", "--no-data", run.folder)
    assert code == 2
    assert f"error    {name}: " in shown
    assert messages.startswith("error: ")
    assert messages.count("\n") == 1


def test_other_versions_are_a_warning(run: Run, command: Command) -> None:
    about = run.read_about()
    write_sealed(run.about, about | {"versions": about["versions"] | {"torch": "1.0"}})
    code, shown, _ = command("verify", "--no-data", run.folder)
    assert code == 0
    assert "warning  versions: begun with torch 1.0 (here" in shown


def test_other_data_are_an_error(run: Run, command: Command) -> None:
    change_recipe(run, run.recipe.read_text().replace("labels = 50", "labels = 60"))
    code, shown, _ = command("verify", run.folder)
    assert code == 2
    assert "error    data: " in shown
