"""The loop: step, evaluate, log, checkpoint, from the first step or from any other."""

import dataclasses
import json
import os
import shlex
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import torch

from dualstudent.atomic import atomic_write
from dualstudent.data.prepared import PreparedData
from dualstudent.errors import UserError
from dualstudent.recipes.schema import Recipe
from dualstudent.signals import Interrupted, StopRequest
from dualstudent.training.checkpoint import restore_checkpoint, save_checkpoint, write_tensors
from dualstudent.training.course import Course, LossNotFinite
from dualstudent.training.distributed import followers, gather_ranks, reduce_max
from dualstudent.training.result import summarize_metrics
from dualstudent.training.run import Run
from dualstudent.training.training import Training

_SECONDS_BETWEEN_CHECKPOINTS = 60.0


class Observer:
    """Watches a run from outside; this one does nothing with what it sees."""

    def on_start(self, step: int, total: int) -> None:
        """The run starts or continues at ``step`` of ``total``."""

    def on_step(self, step: int) -> None:
        """``step`` steps are done."""

    def on_epoch(self, record: dict[str, Any]) -> None:
        """An epoch is done; ``record`` is its line in the metrics."""


def train(
    recipe: Recipe,
    folder: Path | str,
    observer: Observer | None = None,
    data: PreparedData | None = None,
) -> Run:
    """What :func:`dualstudent.train` does before it draws a page."""
    folder = Path(folder)
    Run.check_free(folder)
    with followers(recipe, folder):
        training = Training(recipe, data)
        run = Run.create(folder, training.recipe, training.data)
        with run.reserved():
            _Loop(training, run, observer).run_to_end()
    return run


def resume(
    folder: Path | str, observer: Observer | None = None, data: PreparedData | None = None
) -> Run:
    """What :func:`dualstudent.resume` does before it draws a page."""
    run = Run.open(Path(folder))
    if run.result.is_file():
        return run
    recipe = run.read_recipe()
    with run.reserved(), followers(recipe, run.folder):
        training = Training(recipe, data, run.check_same_data)
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
    Run.open(folder).check_is_of(recipe)
    return resume(folder, observer)


class _Loop:
    """A course with all that a run writes down about it."""

    def __init__(self, training: Training, run: Run, observer: Observer | None) -> None:
        self._training, self._run, self._course = training, run, Course(training)
        self._observer = observer or Observer()
        self._leads = training.fabric.is_global_zero
        self._seconds = 0.0
        self._metrics_size = 0
        self._last_checkpoint = time.monotonic()

    def restore(self) -> None:
        """Go back to the last checkpoint; stay at the beginning if there is none yet."""
        training, course = self._training, self._course
        if not self._run.checkpoint.is_file():
            return
        sums, index = restore_checkpoint(self._run.checkpoint, training.method, training.optimizers)
        own = training.fabric.global_rank
        course.sums = sums.reshape(training.fabric.world_size, -1)[own].to(training.fabric.device)
        course.step, self._seconds = index["step"], index["seconds"]
        self._metrics_size = index["metrics_size"]
        course.names = [(student, term) for student, term in index["names"]]

    def run_to_end(self) -> None:
        training, course = self._training, self._course
        with StopRequest() as stop, closing(training), self._telling_what_is_kept():
            if self._leads:
                self._forget_later_metrics()
            if training.data.tally is not None:
                training.data.tally.write_to(self._run.log)
            self._observer.on_start(course.step, training.schedule.total_steps)
            while not course.done:
                started = time.monotonic()
                record = course.advance()
                if record is not None and self._leads:
                    self._log(record | self._tested())
                self._seconds += time.monotonic() - started
                self._observer.on_step(course.step)
                waited = time.monotonic() - self._last_checkpoint
                overdue = waited > _SECONDS_BETWEEN_CHECKPOINTS
                tally = training.data.tally
                too_many_broken = tally is not None and tally.too_many
                stopped, due, refused = reduce_max(
                    training.fabric, [stop.received or 0, int(overdue), int(too_many_broken)]
                )
                if refused and tally is not None:
                    tally.refuse()
                if due or stopped or course.done:
                    self._save()
                if stopped and not course.done:
                    command = shlex.join(["dualstudent", "resume", str(self._run.folder)])
                    raise Interrupted(stopped, f"step {course.step}", command)
        if self._leads:
            self._finish()

    @contextmanager
    def _telling_what_is_kept(self) -> Iterator[None]:
        """The last checkpoint is from before a training diverged."""
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
        self._observer.on_epoch(record)

    def _tested(self) -> dict[str, Any]:
        training, course = self._training, self._course
        epoch = course.step // training.schedule.steps_per_epoch
        if epoch % training.recipe.evaluation.every and not course.done:
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
        course = self._course
        course.check_finite()
        if not all(bool(p.isfinite().all()) for p in self._training.method.parameters()):
            raise LossNotFinite(
                f"weights are no longer finite at step {course.step}; try a smaller "
                "optimizer.learning_rate"
            )
        self._last_checkpoint = time.monotonic()
        sums = torch.zeros(len(course.names)) if course.sums is None else course.sums
        sums = gather_ranks(self._training.fabric, sums)
        if not self._leads:
            return
        save_checkpoint(
            self._run.checkpoint,
            self._training.method,
            self._training.optimizers,
            sums,
            {
                "step": course.step,
                "seconds": self._seconds,
                "metrics_size": self._metrics_size,
                "names": course.names,
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
        data = training.data
        for key, tensor in data.train.preprocessing().items():
            weights[f"preprocessing.{key}"] = tensor
        notes = {
            "classes": data.classes,
            "exported": method.exported,
            "shape": data.train.shape,
            "data": run.read_fingerprint(),
        }
        write_tensors(run.model, weights, notes)
        summary = summarize_metrics(run.read_metrics(), method.headline, self._seconds)
        if training.data.tally is not None:
            summary["unreadable_images"] = training.data.tally.different
        with atomic_write(run.result) as partial:
            partial.write_text(json.dumps(summary, indent=1) + "\n")
