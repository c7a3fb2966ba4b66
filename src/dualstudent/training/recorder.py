"""Runs a trainer to the end and writes the files of its run."""

import json
import os
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from statistics import fmean
from typing import Any

import torch

from dualstudent.atomic import atomic_write
from dualstudent.errors import UserError
from dualstudent.signals import Interrupted, StopRequest
from dualstudent.training.callbacks import Callback
from dualstudent.training.checkpoint import (
    read_stage,
    restore_checkpoint,
    save_checkpoint,
    write_tensors,
)
from dualstudent.training.distributed import gather_ranks, reduce_max
from dualstudent.training.run import Run, list_versions, select_last_stage
from dualstudent.training.trainer import LossNotFinite, Trainer

_SECONDS_BETWEEN_CHECKPOINTS = 60.0


class Recorder:
    """Trains to the end; writes metrics, checkpoints, weights and the result of a run.

    With several processes, only the leader writes files and has callbacks.

    Args:
        trainer: a new trainer.
        run: the run to write to.
        callbacks: receive the progress.
    """

    def __init__(
        self, trainer: Trainer, run: Run, callbacks: Callback | Sequence[Callback] = ()
    ) -> None:
        self._trainer, self._run = trainer, run
        self._callbacks = [callbacks] if isinstance(callbacks, Callback) else list(callbacks)
        self._leads = trainer.fabric.is_global_zero
        self._metrics_size = 0
        self._last_checkpoint = time.monotonic()

    def restore(self) -> None:
        """Restore the last checkpoint, if there is one."""
        path, trainer = self._run.checkpoint, self._trainer
        if not path.is_file():
            return
        trainer.enter_stage(read_stage(path))
        fabric = trainer.fabric
        self._metrics_size = restore_checkpoint(
            path, trainer.state, fabric.global_rank, fabric.world_size
        )

    def run_to_end(self) -> None:
        """Train all remaining steps and write the result.

        Raises:
            Interrupted: after a stop signal; a checkpoint has been written.
            LossNotFinite: if the training diverged.
        """
        trainer = self._trainer
        with StopRequest() as stop, closing(trainer), self._mention_checkpoint():
            if self._leads:
                self._truncate_metrics()
            if trainer.data.tally is not None:
                trainer.data.tally.write_to(self._run.log)
            for callback in self._callbacks:
                callback.on_start(trainer.state.step, trainer.total_steps)
            while not trainer.done:
                self._take_step()
                self._save_or_stop(stop)
        if self._leads:
            self._finish()

    def _take_step(self) -> None:
        trainer, started = self._trainer, time.monotonic()
        record = trainer.advance()
        if record is not None and self._leads:
            self._log(record | trainer.evaluate())
        trainer.state.seconds += time.monotonic() - started
        for callback in self._callbacks:
            callback.on_step(trainer.state.step)

    def _save_or_stop(self, stop: StopRequest) -> None:
        """Save a checkpoint, stop, or raise, if any of the processes has a reason to."""
        trainer, tally = self._trainer, self._trainer.data.tally
        overdue = time.monotonic() - self._last_checkpoint > _SECONDS_BETWEEN_CHECKPOINTS
        too_many_broken = tally is not None and tally.too_many
        stopped, due, refused = reduce_max(
            trainer.fabric, [stop.received or 0, int(overdue), int(too_many_broken)]
        )
        if refused and tally is not None:
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
        with self._run.metrics.open("a") as file:
            file.write(json.dumps(record) + "\n")
            self._metrics_size = file.tell()
        for callback in self._callbacks:
            callback.on_epoch(record)

    def _truncate_metrics(self) -> None:
        """Drop lines written after the checkpoint, whose epochs are trained again."""
        self._run.metrics.touch()
        if self._run.metrics.stat().st_size < self._metrics_size:
            raise UserError(
                f"{self._run.metrics}: is shorter than it was at the last checkpoint; bring it "
                "back, or train again into another folder"
            )
        os.truncate(self._run.metrics, self._metrics_size)

    def _save(self) -> None:
        trainer, state = self._trainer, self._trainer.state
        trainer.check_finite()
        trainer.check_weights()
        self._last_checkpoint = time.monotonic()
        nothing = torch.zeros(len(state.terms), device=trainer.fabric.device)
        sums = nothing if state.sums is None else state.sums
        sums = gather_ranks(trainer.fabric, sums)
        if self._leads:
            save_checkpoint(self._run.checkpoint, state, sums, self._metrics_size)

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
        notes = {
            "classes": data.classes,
            "exported": method.exported,
            "shape": data.train.shape,
            "data": run.read_fingerprint(),
        }
        write_tensors(run.model, weights, notes)
        summary = summarize_metrics(run.read_metrics(), method.headline, trainer.state.seconds)
        if data.tally is not None:
            summary["unreadable_images"] = data.tally.count
        with atomic_write(run.result) as partial:
            partial.write_text(json.dumps(summary, indent=1) + "\n")


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
