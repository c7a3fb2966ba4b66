"""The loop: step, evaluate, log, checkpoint, from the first step or from any other."""

import dataclasses
import json
import math
import os
import shlex
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dualstudent.errors import UserError
from dualstudent.interruption import Interrupted, StopRequest
from dualstudent.methods import StudentLoss
from dualstudent.recipes.schema import Recipe
from dualstudent.training.checkpoint import (
    replaced_at_once,
    restore_checkpoint,
    save_checkpoint,
    write_tensors,
)
from dualstudent.training.processes import followers, gathered, largest
from dualstudent.training.result import summarised
from dualstudent.training.run import Run
from dualstudent.training.training import Training

_SECONDS_BETWEEN_CHECKPOINTS = 60.0
_STEPS_BETWEEN_CHECKS = 50


class Observer:
    """Watches a run from outside; this one does nothing with what it sees."""

    def on_start(self, step: int, total: int) -> None:
        """The run starts or continues at ``step`` of ``total``."""

    def on_step(self, step: int) -> None:
        """``step`` steps are done."""

    def on_epoch(self, record: dict[str, Any]) -> None:
        """An epoch is done; ``record`` is its line in the metrics."""


class LossNotFinite(UserError):
    """Training diverged; the last checkpoint is from before."""


def train(recipe: Recipe, folder: Path | str, observer: Observer | None = None) -> Run:
    """Train by a recipe into a new folder.

    Args:
        recipe: what to do.
        folder: must not exist or be empty.
        observer: is told how far it is.

    Raises:
        UserError: if recipe, data and folder do not fit; then nothing has been written.
        Interrupted: after Ctrl-C or SIGTERM; :func:`resume` continues.
    """
    folder = Path(folder)
    Run.check_is_free(folder)
    with followers(recipe, folder):
        training = Training(recipe)
        run = Run.create(folder, recipe, training.data)
        _Loop(training, run, observer).run_to_end()
    return run


def resume(folder: Path | str, observer: Observer | None = None) -> Run:
    """Continue a run exactly where its last checkpoint left it; a finished run stays as it is."""
    run = Run.open(Path(folder))
    if run.result.is_file():
        return run
    recipe = run.read_recipe()
    with followers(recipe, run.folder):
        training = Training(recipe)
        run.check_same_data(training.data)
        loop = _Loop(training, run, observer)
        loop.restore()
        loop.run_to_end()
    return run


def follow(recipe: Recipe, folder: Path) -> None:
    """Take part, as one of several processes, in the run that another one leads in ``folder``."""
    loop = _Loop(Training(recipe), Run(folder), None)
    loop.restore()
    loop.run_to_end()


def train_or_resume(recipe: Recipe, folder: Path | str, observer: Observer | None = None) -> Run:
    """Train into a new folder, or continue the run of the same recipe that is there."""
    folder = Path(folder)
    if not folder.exists() or not any(folder.iterdir()):
        return train(recipe, folder, observer)
    if not Run.open(folder).read_recipe().defines_same_run_as(recipe):
        raise UserError(f"{folder} holds a run of another recipe; choose another --out")
    return resume(folder, observer)


class _Loop:
    """Where a run stands, and how it goes on."""

    def __init__(self, training: Training, run: Run, observer: Observer | None) -> None:
        self._training, self._run = training, run
        self._observer = observer or Observer()
        self._leads = training.fabric.is_global_zero
        self._step = 0
        self._seconds = 0.0
        self._metrics_size = 0
        self._sums: Tensor | None = None  # of the loss terms since the epoch began
        self._names: list[tuple[int, str]] = []
        self._last_checkpoint = time.monotonic()

    def restore(self) -> None:
        """Go back to the last checkpoint; stay at the beginning if there is none yet."""
        training = self._training
        if not self._run.checkpoint.is_file():
            return
        sums, position = restore_checkpoint(
            self._run.checkpoint, training.method, training.optimizers
        )
        own = training.fabric.global_rank
        self._sums = sums.reshape(training.fabric.world_size, -1)[own].to(training.fabric.device)
        self._step, self._seconds = position["step"], position["seconds"]
        self._metrics_size = position["metrics_size"]
        self._names = [(student, term) for student, term in position["names"]]

    def run_to_end(self) -> None:
        training = self._training
        total, epoch_length = training.schedule.total_steps, training.schedule.steps_per_epoch
        with StopRequest() as stop, closing(training):
            if self._leads:
                self._forget_later_metrics()
            if training.data.tally is not None:
                training.data.tally.write_to(self._run.log)
            self._observer.on_start(self._step, total)
            training.method.train()
            while self._step < total:
                started = time.monotonic()
                self._add(training.take_step(self._step))
                self._step += 1
                if self._step % epoch_length == 0:
                    self._finish_epoch()
                self._seconds += time.monotonic() - started
                self._observer.on_step(self._step)
                if self._step % _STEPS_BETWEEN_CHECKS == 0:
                    self._check_finite()
                waited = time.monotonic() - self._last_checkpoint
                overdue = waited > _SECONDS_BETWEEN_CHECKPOINTS
                stopped, due = largest(training.fabric, [stop.received or 0, int(overdue)])
                if due or stopped or self._step == total:
                    self._save()
                if stopped and self._step < total:
                    command = shlex.join(["dualstudent", "resume", str(self._run.folder)])
                    raise Interrupted(stopped, f"step {self._step}", command)
        if self._leads:
            self._finish()

    def _add(self, losses: list[StudentLoss]) -> None:
        """Sum the terms where they are: nothing is copied to the host in a step."""
        values = torch.stack([term.detach() for loss in losses for term in loss.terms.values()])
        self._names = [(i, name) for i, loss in enumerate(losses) for name in loss.terms]
        self._sums = values if self._sums is None else self._sums + values

    def _means(self) -> Tensor:
        """Of the sums of all processes; they hold equally large shares of every batch."""
        assert self._sums is not None
        return gathered(self._training.fabric, self._sums).mean(dim=0)

    def _check_finite(self) -> None:
        if self._sums is None:
            return
        means = self._means()
        if bool(means.isfinite().all()):
            return
        broken = next(
            name
            for name, value in zip(self._names, means.tolist(), strict=True)
            if not math.isfinite(value)
        )
        kept = f"; {self._run.folder} keeps the last good checkpoint"
        kept = kept if self._run.checkpoint.is_file() else ""
        rate = self._training.recipe.optimizer.learning_rate
        raise LossNotFinite(
            f"the loss is no longer finite: {broken[1]} of student {broken[0] + 1}, within the "
            f"{_STEPS_BETWEEN_CHECKS} steps before step {self._step}; try a smaller "
            f"optimizer.learning_rate than {rate:g}, a longer schedule.rampup_epochs or smaller "
            f"weights of the method{kept}"
        )

    def _finish_epoch(self) -> None:
        self._check_finite()
        epoch_length = self._training.schedule.steps_per_epoch
        self._training.finish_epoch(self._step // epoch_length - 1)
        means = (self._means() / epoch_length).tolist()
        self._sums = None
        if self._leads:
            self._record(means)

    def _record(self, means: list[float]) -> None:
        training, schedule = self._training, self._training.schedule
        terms: list[dict[str, float]] = [{} for _ in training.method.students]
        for (student, name), value in zip(self._names, means, strict=True):
            terms[student][name] = value
        record = {
            "epoch": self._step // schedule.steps_per_epoch,
            "step": self._step,
            "learning_rate": schedule.learning_rate(self._step - 1),
            "ramp": schedule.ramp(self._step - 1),
            "loss": terms,
        } | self._tested()
        with self._run.metrics.open("a") as file:
            file.write(json.dumps(record) + "\n")
            self._metrics_size = file.tell()
        self._observer.on_epoch(record)

    def _tested(self) -> dict[str, Any]:
        training, schedule = self._training, self._training.schedule
        epoch = self._step // schedule.steps_per_epoch
        if epoch % training.recipe.evaluation.every and self._step < schedule.total_steps:
            return {"test": {}}
        found = training.evaluator.evaluate(training.method.evaluated)
        tested = {
            "test": {name: dataclasses.asdict(each) for name, each in found.networks.items()},
            "distances": {pair: dataclasses.asdict(each) for pair, each in found.distances.items()},
        }
        return tested | ({"tracked": found.tracked} if found.tracked else {})

    def _forget_later_metrics(self) -> None:
        """Drop lines written after the checkpoint: those epochs are run again."""
        self._run.metrics.touch()
        if self._run.metrics.stat().st_size < self._metrics_size:
            raise UserError(
                f"{self._run.metrics}: is shorter than it was at the last checkpoint; bring it "
                "back, or train again into another folder"
            )
        os.truncate(self._run.metrics, self._metrics_size)

    def _save(self) -> None:
        self._check_finite()
        if not all(bool(p.isfinite().all()) for p in self._training.method.parameters()):
            raise LossNotFinite(
                f"weights are no longer finite at step {self._step}; try a smaller "
                "optimizer.learning_rate"
            )
        self._last_checkpoint = time.monotonic()
        sums = torch.zeros(len(self._names)) if self._sums is None else self._sums
        sums = gathered(self._training.fabric, sums)
        if not self._leads:
            return
        save_checkpoint(
            self._run.checkpoint,
            self._training.method,
            self._training.optimizers,
            sums,
            {
                "step": self._step,
                "seconds": self._seconds,
                "metrics_size": self._metrics_size,
                "names": self._names,
            },
        )

    def _finish(self) -> None:
        run, training = self._run, self._training
        weights = {
            f"{name}.{key}": tensor
            for name, network in training.method.evaluated.items()
            for key, tensor in network.state_dict().items()
        }
        method = training.method
        notes = {"classes": training.data.source.classes, "exported": method.exported}
        write_tensors(run.model, weights, notes)
        summary = summarised(run.read_metrics(), method.headline, self._seconds)
        if training.data.tally is not None:
            summary["unreadable_images"] = training.data.tally.different
        with replaced_at_once(run.result) as partial:
            partial.write_text(json.dumps(summary, indent=1) + "\n")
