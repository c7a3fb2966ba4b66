"""Runs a trainer to the end and writes the files of its run."""

import json
import math
import os
import shlex
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from statistics import fmean
from typing import Any

import torch

from dualstudent.atomic import name_file
from dualstudent.errors import UserError
from dualstudent.sealed import hash_file
from dualstudent.signals import Interrupted, StopRequest
from dualstudent.training.adaptation import keep_features
from dualstudent.training.callbacks import Callback, list_callbacks
from dualstudent.training.checkpoint import (
    Checkpoint,
    read_checkpoint,
    restore_checkpoint,
    save_checkpoint,
    write_tensors,
)
from dualstudent.training.distributed import gather_texts, reduce_max
from dualstudent.training.run import Run, list_versions, select_last_stage
from dualstudent.training.trainer import LossNotFinite, Trainer
from dualstudent.training.trunk import describe_trunk

_SECONDS_BETWEEN_CHECKPOINTS = 60.0


class Recorder:
    """Trains to the end; writes metrics, checkpoints, weights and the result of a run.

    With several processes, only the leader writes files and has callbacks.

    Args:
        trainer: a new trainer.
        run: the run to write to.
        callbacks: receive the progress, in one process if several train.
    """

    def __init__(
        self, trainer: Trainer, run: Run, callbacks: Callback | Sequence[Callback] = ()
    ) -> None:
        self._trainer, self._run = trainer, run
        self._leads = trainer.team.leads
        self._callbacks = list_callbacks(callbacks) if self._leads else []
        self._metrics_size = 0
        self._last_checkpoint = time.monotonic()
        self._last_is_damaged = False

    def restore(self) -> None:
        """Restore the last checkpoint, or the one before if it is damaged, with a warning.

        Raises:
            UserError: if neither can be used, but the training was further than one epoch.
        """
        checkpoint, trainer = self._find_checkpoint(), self._trainer
        if checkpoint is None:
            return
        trainer.enter_stage(checkpoint.notes.stage)
        restore_checkpoint(checkpoint, trainer.state)
        if not trainer.has_consistent_state():
            raise UserError(f"{checkpoint.path}: belongs to another recipe or version")
        self._metrics_size = checkpoint.notes.metrics_size

    def _find_checkpoint(self) -> Checkpoint | None:
        run, problems = self._run, list[UserError]()
        for path in (run.checkpoint, run.earlier_checkpoint):
            try:
                found = read_checkpoint(path)
                self._check_metrics(found)
            except UserError as error:
                problems.append(error)
                continue
            if problems:
                self._last_is_damaged = True
                self._warn(f"{problems[0]}; going on from {path.name}, step {found.notes.step}")
            return found
        if run.checkpoint.exists() or run.earlier_checkpoint.exists():
            raise problems[0]
        self._check_begun()
        return None

    def _check_metrics(self, checkpoint: Checkpoint) -> None:
        """Check that the metrics are those at the checkpoint, and maybe more."""
        path, notes = self._run.metrics, checkpoint.notes
        found = hash_file(path, notes.metrics_size)
        expected = (None, found)  # None in an earlier version
        if notes.metrics_sha256 not in expected or path.stat().st_size < notes.metrics_size:
            raise UserError(
                f"{path}: is not as it was at {checkpoint.path.name}; bring it back, or train "
                "again into another folder"
            )

    def _check_begun(self) -> None:
        """Check that a run without a checkpoint was stopped before it could write one."""
        run = self._run
        if not run.metrics.exists():
            return
        # The first checkpoint follows the first line of the metrics.
        if run.metrics.read_bytes().count(b"\n") > 1:
            raise UserError(
                f"{run.checkpoint}: is missing; bring it back, or train again into another folder"
            )
        self._warn(f"{run.folder}: was stopped before its first checkpoint and starts again")

    def _warn(self, text: str) -> None:
        if self._leads:
            warnings.warn(text, stacklevel=4)

    def run_to_end(self) -> None:
        """Train all remaining steps and write the result.

        Raises:
            Interrupted: after a stop signal; a checkpoint has been written.
            LossNotFinite: if the training diverged.
        """
        trainer = self._trainer
        with self._tell_callbacks():
            with StopRequest() as stop, closing(trainer), self._mention_checkpoint():
                if self._leads:
                    self._truncate_metrics()
                if (tally := trainer.data.tally) is not None:
                    tally.write_to(self._run.log) if self._leads else tally.keep_for_leader()
                for callback in self._callbacks:
                    callback.on_start(trainer.state.step, trainer.total_steps)
                while not trainer.done:
                    self._take_step()
                    self._save_or_stop(stop)
            if self._leads:
                self._finish()

    @contextmanager
    def _tell_callbacks(self) -> Iterator[None]:
        """Tell the callbacks of the run, and how it ended."""
        with ExitStack() as ends:
            for callback in self._callbacks:
                callback.on_run(self._run, self._trainer.recipe)
                ends.push(_end(callback))
            yield

    def _take_step(self) -> None:
        trainer, started = self._trainer, time.monotonic()
        adapts = trainer.enter_due_stage() and trainer.data.is_target is not None
        if adapts and self._leads:
            keep_features(trainer, self._run.features_before)
        record = trainer.advance()
        if record is not None and self._leads:
            self._log(record | trainer.evaluate())
            if not self._run.checkpoint.exists():  # so that a missing one is noticed
                self._last_checkpoint = -math.inf
        trainer.state.seconds += time.monotonic() - started
        for callback in self._callbacks:
            callback.on_step(trainer.state.step)

    def _save_or_stop(self, stop: StopRequest) -> None:
        """Save a checkpoint, stop, or raise, if any of the processes has a reason to."""
        trainer, tally = self._trainer, self._trainer.data.tally
        overdue = time.monotonic() - self._last_checkpoint > _SECONDS_BETWEEN_CHECKPOINTS
        too_many_broken = tally is not None and tally.too_many
        unheard = tally is not None and tally.has_unheard
        stopped, due, refused, named = reduce_max(
            trainer.fabric, [stop.received or 0, *map(int, (overdue, too_many_broken, unheard))]
        )
        if tally is not None:
            if named:
                told = gather_texts("\n".join(tally.take_unheard()))
                tally.report([line for text in told for line in text.splitlines()])
            if refused:
                tally.raise_too_many()
        if due or stopped or trainer.done:
            self._save()
        if stopped and not trainer.done:
            command = shlex.join(["dualstudent", "resume", str(self._run.folder)])
            raise Interrupted(stopped, f"step {trainer.state.step}", command)

    @contextmanager
    def _mention_checkpoint(self) -> Iterator[None]:
        """If the training diverges, add to the message that a good checkpoint exists."""
        try:
            yield
        except LossNotFinite as error:
            if not self._run.checkpoint.is_file():
                raise
            kept = f"{self._run.folder} keeps the last good checkpoint"
            raise LossNotFinite(f"{error}; {kept}") from error

    def _log(self, record: dict[str, Any]) -> None:
        with name_file(self._run.metrics), self._run.metrics.open("a") as file:
            file.write(json.dumps(record) + "\n")
            self._metrics_size = file.tell()  # also flushes
            os.fsync(file.fileno())  # a checkpoint that outlives a power cut needs them
        for callback in self._callbacks:
            callback.on_epoch(record)

    def _truncate_metrics(self) -> None:
        """Drop lines written after the checkpoint, whose epochs are trained again."""
        self._run.metrics.touch()
        os.truncate(self._run.metrics, self._metrics_size)

    def _save(self) -> None:
        trainer, state = self._trainer, self._trainer.state
        trainer.check_finite()
        trainer.check_weights()
        self._last_checkpoint = time.monotonic()
        if self._leads:
            nothing = torch.zeros(len(state.terms), device=trainer.fabric.device)
            sums = nothing if state.sums is None else state.sums
            run, size = self._run, self._metrics_size
            keep = None if self._last_is_damaged else run.earlier_checkpoint
            save_checkpoint(run.checkpoint, state, sums, (size, hash_file(run.metrics, size)), keep)
            self._last_is_damaged = False

    def _finish(self) -> None:
        run, trainer, method = self._run, self._trainer, self._trainer.method
        weights = {
            f"{name}.{key}": tensor
            for name, network in method.evaluated.items()
            for key, tensor in network.state_dict().items()
        }
        data = trainer.data
        for key, tensor in data.train.preprocessing().items():
            weights[f"preprocessing.{key}"] = tensor
        notes: dict[str, Any] = {
            "classes": data.classes,
            "exported": method.exported,
            "shape": data.train.shape,
            "data": run.read_fingerprint(),
        }
        if trunk := describe_trunk(data.train):
            notes["trunk"] = trunk.model_dump(mode="json")
        write_tensors(run.model, weights, notes)
        summary = summarize_metrics(run.read_metrics(), method.headline, trainer.state.seconds)
        if data.tally is not None:
            summary["unreadable_images"] = data.tally.count
        run.write_result(summary)
        run.earlier_checkpoint.unlink(missing_ok=True)


def _end(callback: Callback) -> Callable[..., None]:
    return lambda kind, error, trace: callback.on_end(error)


def summarize_metrics(
    metrics: list[dict[str, Any]], headline: list[str], seconds: float
) -> dict[str, Any]:
    """Summarize a run from its metrics.

    The error is the mean over the headline networks at the last epoch. ``chosen_on_test`` is the
    best epoch of the last stage and student on the test set, as the paper's authors report; it
    selects by test error and is marked as such. Without a test set, both are None.
    """
    last = metrics[-1]
    errors = [last["test"][name]["error"] for name in headline if last["test"]]
    every = [
        figures["error"]
        for record in select_last_stage(metrics)
        for name, figures in record["test"].items()
        if name in headline
    ]
    return {
        "error": fmean(errors) if errors else None,
        "headline": headline,
        "networks": last["test"],
        "chosen_on_test": {
            "note": "lowest test error over all epochs and students, as the authors report "
            "(too optimistic)",
            "error": min(every, default=None),
        },
        "epochs": last["epoch"],
        "steps": last["step"],
        "seconds": round(seconds, 1),
        "versions": list_versions(),
    }
