"""The metrics that TensorBoard, MLflow and Weights & Biases are told, with the real packages."""

import importlib
import importlib.util
import io
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wandb
from mlflow.tracking import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from dualstudent import Interrupted, Run, UserError, log_to, resume, train
from dualstudent.loggers import Logger, find_identity, flatten_record
from dualstudent.sealed import write_sealed
from tests.support.command import Command
from tests.support.recipes import SMALL, small_recipe
from tests.support.runs import RaisesSignalAt, StopsAtOnce

DIGITS = ["digits", *(word for each in SMALL for word in ("--set", each))]


def stop_and_resume(folder: Path, name: str) -> Run:
    """A run that is stopped in its second epoch, and resumed."""
    with pytest.raises(Interrupted):
        train(small_recipe(), folder, [log_to(name), RaisesSignalAt(40)])
    return resume(folder, log_to(name))


def test_runs_are_told_apart_by_a_random_id_that_moves_along(tmp_path: Path) -> None:
    recipe, ids = small_recipe("schedule.epochs=1"), []
    for place in ("a", "b"):
        with pytest.raises(Interrupted):
            train(recipe, tmp_path / place / "run", StopsAtOnce())
        ids.append(find_identity(Run(tmp_path / place / "run")))
    assert ids[0] != ids[1]
    moved = shutil.move(tmp_path / "a" / "run", tmp_path / "renamed")
    assert find_identity(resume(moved)) == ids[0]


def test_runs_of_earlier_versions_are_told_apart_too(tmp_path: Path) -> None:
    found = set()
    for name, about in (("a", {}), ("b", {"versions": {}}), ("c", {"id": "' OR 1"})):
        (tmp_path / name).mkdir()
        write_sealed((run := Run(tmp_path / name)).about, {"format": 4, "digests": {}} | about)
        found.add(find_identity(run))
    assert len(found) == 3
    assert all(each.isalnum() for each in found)


def expect(run: Run) -> dict[str, dict[int, float]]:
    """Name → step → value, as the lines of JSON have them."""
    found: dict[str, dict[int, float]] = {}
    for record in run.read_metrics():
        for name, value in flatten_record(record):
            found.setdefault(name, {})[record["step"]] = value
    assert {"ramp", "loss/student1/consistency", "test/student2/error"} <= set(found)
    return found


def approx(values: dict[int, float]) -> Any:
    return pytest.approx(values, rel=1e-6)


def test_tensorboard_shows_every_epoch_once(tmp_path: Path) -> None:
    run = stop_and_resume(tmp_path / "run", "tensorboard")
    read = EventAccumulator(str(run.folder / "tensorboard")).Reload()
    expected = expect(run)
    assert set(read.Tags()["scalars"]) == set(expected)
    for name, values in expected.items():
        assert {each.step: each.value for each in read.Scalars(name)} == approx(values)
    assert read.Tags()["tensors"] == ["recipe/text_summary"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of SQLAlchemy, about MLflow
def test_mlflow_keeps_one_run_with_all_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    run = stop_and_resume(tmp_path / "run", "mlflow")
    client = MlflowClient(store)
    experiment = client.get_experiment_by_name("dualstudent")
    assert experiment is not None
    (found,) = client.search_runs([experiment.experiment_id])
    assert (found.info.run_name, found.info.status) == ("run", "FINISHED")
    assert found.data.params["method.name"] == "dual-student"
    assert found.data.params["schedule.epochs"] == "2"
    for name, values in expect(run).items():
        history = client.get_metric_history(found.info.run_id, name)
        assert {each.step: each.value for each in history} == approx(values)


def test_nothing_is_made_before_a_run_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    log_to("mlflow")
    assert not any(tmp_path.iterdir())


def read_offline(content: bytes) -> Iterator[bytes]:
    """The records of a file of wandb: LevelDB's log format after 7 bytes."""
    place, parts = 7, b""
    while place + 7 <= len(content):
        if (rest := 32768 - place % 32768) < 7:  # a record never begins at the end of a block
            place += rest
            continue
        _, size, kind = struct.unpack_from("<IHB", content, place)
        parts += content[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or its last part
            yield parts
            parts = b""


def test_wandb_writes_offline_what_can_be_sent_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = train(small_recipe("schedule.epochs=1"), tmp_path / "run", log_to("wandb"))
    (file,) = (run.folder / "wandb").glob("offline-run-*/*.wandb")
    records: Any = importlib.import_module("wandb.proto.wandb_internal_pb2")
    logged: dict[str, str] = {}
    for data in read_offline(file.read_bytes()):
        record = records.Record()
        record.ParseFromString(data)
        for item in record.history.item:
            logged["/".join(item.nested_key) or item.key] = item.value_json
    for name, values in expect(run).items():
        assert float(logged[name]) == pytest.approx(next(iter(values.values())), rel=1e-6)


class Terminal(io.StringIO):
    """Where wandb would ask."""

    def isatty(self) -> bool:
        return True

    def readline(self, size: int | None = -1) -> str:  # type: ignore[override]
        raise AssertionError("was asked")


def test_wandb_without_a_login_asks_nothing_and_creates_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    for name in ("WANDB_MODE", "WANDB_API_KEY", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("sys.stdin", Terminal())
    wandb.teardown()  # it remembers the environment
    code, _, said = command("train", *DIGITS, "--out", tmp_path / "run", "--log", "wandb")
    assert (code, said.count("\n")) == (2, 1), said
    assert "wandb login" in said
    assert "WANDB_MODE=offline" in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("address", ["no-such-protocol://nowhere", "http://127.0.0.1:9"])
def test_a_server_that_cannot_be_reached_is_one_line_before_anything_runs(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    code, _, said = command("train", *DIGITS, "--out", tmp_path / "run", "--log", "mlflow")
    assert (code, said.count("\n"), "mlflow failed" in said) == (2, 1, True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb"])
def test_a_missing_package_is_one_line_before_anything_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "dualstudent.loggers.find_spec", lambda package: None if package == name else find(package)
    )
    code, _, said = command("train", *DIGITS, "--out", tmp_path / "run", "--log", name)
    assert (code, said.count("\n")) == (2, 1)
    assert f"the extra '{name}'" in said
    assert not (tmp_path / "run").exists()


def test_an_unknown_logger_is_refused_and_a_similar_one_suggested() -> None:
    with pytest.raises(UserError, match="did you mean 'tensorboard'"):
        log_to("tensorbord")


class Fails(Logger):
    """Cannot reach its server; notes how the run ended."""

    package = "elsewhere"
    ended: BaseException | None = None

    def open(self, run: Run, recipe: object) -> None:
        pass

    def log(self, metrics: dict[str, float], step: int) -> None:
        raise OSError("the server\nis gone")

    def close(self, error: BaseException | None) -> None:
        self.ended = error


class CannotBegin(Fails):
    def open(self, run: Run, recipe: object) -> None:
        raise RuntimeError("no key")


def test_a_server_that_is_gone_does_not_end_a_training(tmp_path: Path) -> None:
    logger = Fails()
    with pytest.warns(UserWarning, match=r"elsewhere failed: OSError: the server\\nis gone"):
        run = train(small_recipe("schedule.epochs=1"), tmp_path / "run", logger)
    assert run.result.is_file()
    assert logger.ended is None


def test_loggers_are_told_how_a_run_ended(tmp_path: Path) -> None:
    logger = Fails()
    with pytest.raises(Interrupted):
        train(small_recipe(), tmp_path / "run", [logger, RaisesSignalAt(20)])
    assert isinstance(logger.ended, Interrupted)


def test_a_logger_that_cannot_begin_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="elsewhere failed: RuntimeError: no key"):
        train(small_recipe(), tmp_path / "run", CannotBegin())
