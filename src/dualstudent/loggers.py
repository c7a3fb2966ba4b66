"""Sends the metrics of a run to where people look: TensorBoard, MLflow or Weights & Biases.

The metrics are in the folder of the run in any case, as lines of JSON.
"""

import os
import re
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, ClassVar

from dualstudent.errors import UserError, escape_line
from dualstudent.recipes.reading import to_toml
from dualstudent.recipes.schema import Recipe
from dualstudent.sealed import hash_file
from dualstudent.settings import suggest
from dualstudent.signals import Interrupted
from dualstudent.training.callbacks import Callback
from dualstudent.training.run import Run

_PROJECT = "dualstudent"


class Logger(Callback):
    """Sends every epoch of a run somewhere.

    Attributes:
        package: what must be installed.
    """

    package: ClassVar[str]

    def on_run(self, run: Run, recipe: Recipe) -> None:
        with self._explain():
            self.open(run, recipe)

    def on_epoch(self, record: dict[str, Any]) -> None:
        with self._survive():
            self.log(dict(flatten_record(record)), int(record["step"]))

    def on_end(self, error: BaseException | None) -> None:
        with self._survive():
            self.close(error)

    def check(self) -> None:
        """Check that it can log, before anything is created; must not ask the user.

        Raises:
            UserError: otherwise.
        """
        with self._explain():
            self.connect()

    def connect(self) -> None:
        """Reach the server, if there is one."""

    def open(self, run: Run, recipe: Recipe) -> None:
        """Begin, or go on with a run that was logged before."""
        raise NotImplementedError

    def log(self, metrics: dict[str, float], step: int) -> None:
        """Send the metrics of an epoch that ended with ``step``."""
        raise NotImplementedError

    def close(self, error: BaseException | None) -> None:
        """End, if there was an error because of it."""
        raise NotImplementedError

    @contextmanager
    def _explain(self) -> Iterator[None]:
        try:
            yield
        except UserError:
            raise
        except Exception as error:  # of any kind, as it is the package's
            raise UserError(f"{self._describe(error)}; train without --log, or mend it") from error

    @contextmanager
    def _survive(self) -> Iterator[None]:
        """A server that cannot be reached must not end a training; the run has its metrics."""
        try:
            yield
        except Exception as error:
            warnings.warn(self._describe(error), stacklevel=4)

    def _describe(self, error: Exception) -> str:
        return escape_line(f"logging to {self.package} failed: {type(error).__name__}: {error}")


class TensorBoardLogger(Logger):
    """Writes event files to ``tensorboard/`` in the folder of the run."""

    package = "tensorboard"

    def connect(self) -> None:
        import torch.utils.tensorboard  # noqa: F401  # an installation may be broken

    def open(self, run: Run, recipe: Recipe) -> None:
        self._folder, self._recipe = run.folder / "tensorboard", recipe

    def on_start(self, step: int, total: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # Epochs that are trained again after a checkpoint replace what was written of them.
        self._writer = SummaryWriter(str(self._folder), purge_step=step + 1 if step else None)
        if step == 0:
            self._writer.add_text("recipe", f"```\n{to_toml(self._recipe)}\n```")

    def log(self, metrics: dict[str, float], step: int) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self, error: BaseException | None) -> None:
        if hasattr(self, "_writer"):
            self._writer.close()


class MLflowLogger(Logger):
    """Logs to the tracking server of ``MLFLOW_TRACKING_URI``; default: ``mlflow.db`` here."""

    package = "mlflow"

    def connect(self) -> None:
        from mlflow.tracking import MlflowClient, get_tracking_uri

        # By default, a server that is gone would hold up every epoch for four minutes.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        if not get_tracking_uri().startswith(("sqlite:", "file:")):  # which would be made already
            MlflowClient().get_experiment_by_name(_PROJECT)

    def open(self, run: Run, recipe: Recipe) -> None:
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        self._client, name = MlflowClient(), run.folder.name
        found = self._client.get_experiment_by_name(_PROJECT)
        experiment = found.experiment_id if found else self._client.create_experiment(_PROJECT)
        tag = {"dualstudent.run": find_identity(run)}  # a resumed run goes on in the same one
        earlier = self._client.search_runs(
            [experiment], f"tags.`dualstudent.run` = '{tag['dualstudent.run']}'", max_results=1
        )
        if earlier:
            self._id = earlier[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
            return
        self._id = self._client.create_run(experiment, run_name=name, tags=tag).info.run_id
        settings = flatten_settings(recipe.model_dump(mode="json", exclude_none=True))
        self._client.log_batch(self._id, params=[Param(key, str(v)) for key, v in settings])

    def log(self, metrics: dict[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = time.time_ns() // 1_000_000
        values = [Metric(name, value, now, step) for name, value in metrics.items()]
        self._client.log_batch(self._id, metrics=values)

    def close(self, error: BaseException | None) -> None:
        status = "KILLED" if isinstance(error, Interrupted) else "FAILED" if error else "FINISHED"
        self._client.set_terminated(self._id, status)


class WandbLogger(Logger):
    """Logs to Weights & Biases; with ``WANDB_MODE=offline`` to ``wandb/`` in the run's folder."""

    package = "wandb"

    def connect(self) -> None:
        import wandb

        self._mode: Any = os.environ.get("WANDB_MODE") or wandb.setup().settings.mode
        if self._mode == "online" and not wandb.login(prompt=False, verify=True):
            raise UserError(
                "logging to wandb needs a login, and there is none; run 'wandb login' once, or set "
                "WANDB_MODE=offline to send the metrics later"
            )

    def open(self, run: Run, recipe: Recipe) -> None:
        import wandb

        self._run = wandb.init(
            project=_PROJECT,
            mode=self._mode,
            name=run.folder.name,
            id=find_identity(run),
            resume="allow",
            dir=run.folder,
            config=recipe.model_dump(mode="json", exclude_none=True),
        )

    def log(self, metrics: dict[str, float], step: int) -> None:
        self._run.log(metrics, step=step)

    def close(self, error: BaseException | None) -> None:
        self._run.finish(exit_code=0 if error is None else 1)


LOGGERS: dict[str, type[Logger]] = {
    "tensorboard": TensorBoardLogger,
    "mlflow": MLflowLogger,
    "wandb": WandbLogger,
}


def log_to(name: str) -> Logger:
    """Make a callback that sends metrics to ``"tensorboard"``, ``"mlflow"`` or ``"wandb"``.

    Raises:
        UserError: if there is no such logger, its package is not installed, or its server cannot be
            reached.

    Example:
        >>> from dualstudent import load_recipe, train
        >>> run = train(load_recipe("demo"), "runs/demo", log_to("mlflow"))  # doctest: +SKIP
    """
    if name not in LOGGERS:
        raise UserError(
            f"there is no logger {name!r}{suggest(name, LOGGERS)}; use one of {', '.join(LOGGERS)}"
        )
    kind = LOGGERS[name]
    found = find_spec(kind.package)
    if found is None or found.origin is None:  # a folder of that name here is not the package
        raise UserError(
            f"logging to {name} needs a package that is not installed; "
            f"install the extra '{name}' of dualstudent"
        )
    logger = kind()
    logger.check()
    return logger


def flatten_record(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield every number of an epoch with its name, such as ``"test/student1/error"``.

    Example:
        >>> record = {"epoch": 1, "loss": [{"consistency": 2.0}], "test": {"student": {"error": 9}}}
        >>> dict(flatten_record(record))
        {'epoch': 1, 'loss/student/consistency': 2.0, 'test/student/error': 9}
    """
    for key in ("epoch", "learning_rate", "ramp"):
        if key in record:
            yield key, record[key]
    for student, terms in zip(name_students(record), record["loss"], strict=True):
        yield from ((f"loss/{student}/{term}", value) for term, value in terms.items())
    for section in ("test", "distances"):
        for network, figures in record.get(section, {}).items():
            for figure, value in figures.items():
                if isinstance(value, int | float):  # neither a list by class nor unknown
                    yield f"{section}/{network}/{figure}", value


def flatten_settings(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every setting of a recipe with its dotted key.

    Example:
        >>> dict(flatten_settings({"seed": 1, "data": {"labels": 50}}))
        {'seed': 1, 'data.labels': 50}
    """
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flatten_settings(value, f"{above}{key}.")
        else:
            yield above + key, value


def name_students(record: Mapping[str, Any]) -> list[str]:
    """Return the names of the students whose losses a record has, as methods name them."""
    count = len(record["loss"])
    return ["student"] if count == 1 else [f"student{i}" for i in range(1, count + 1)]


def find_identity(run: Run) -> str:
    """Return what a run is known by, whatever its folder is called: random, since it was created.

    Runs of earlier versions have none; they are known by the digest of ``run.json``.
    """
    found = run.read_about().get("id")
    is_ours = isinstance(found, str) and re.fullmatch("[0-9a-f]{32}", found)
    return str(found) if is_ours else hash_file(run.about)[:32]
