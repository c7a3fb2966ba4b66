"""The trainer, which trains the students of a recipe step by step."""

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from dualstudent.data.batching.loader import BatchLoader
from dualstudent.data.broken import BrokenSamples
from dualstudent.data.prepare import DataSettings, prepare
from dualstudent.data.prepared import Origin, PreparedData
from dualstudent.errors import UserError
from dualstudent.generators import preserve_rng, seed_rng
from dualstudent.methods import Method, StudentLoss, Task, find_method
from dualstudent.networks.build import build_network, is_ours
from dualstudent.networks.network import Network
from dualstudent.optimization.optimizers import clip_gradient, set_learning_rate
from dualstudent.optimization.schedules import Schedule
from dualstudent.prediction import check_prediction
from dualstudent.recipes.schema import Recipe
from dualstudent.training.checks import (
    check_batch_norm,
    check_domains,
    check_normalization,
    check_strong_views,
)
from dualstudent.training.distributed import Team, build_fabric
from dualstudent.training.evaluation import Evaluator
from dualstudent.training.fine_tuning import load_start
from dualstudent.training.inference import Predictions, evaluation_mode, predict
from dualstudent.training.rows import DividedRows, gather_rows
from dualstudent.training.state import TrainState
from dualstudent.training.trunk import use_trunk

_STEPS_BETWEEN_CHECKS = 50
_IMAGES_TO_FIT, _PIXELS_TO_FIT = 1000, 1_000_000  # enough for statistics of small patches


class LossNotFinite(UserError):
    """The training diverged: a loss or a weight is not finite."""


class Trainer:
    """Trains the students of a recipe in memory.

    It writes no files and shows nothing; :func:`dualstudent.train` does. The global random state
    is not changed by a step.

    Args:
        recipe: the recipe.
        data: training data to use instead of ``recipe.data``. They have their own perturbations;
            ``recipe.transforms`` and ``recipe.normalization`` are ignored.
        check: called with the data before anything else is built; may raise.
        stage: the stage to start with, −1 for the last; its students have their initial weights.
        team: the processes that train together; default: this one alone.

    Attributes:
        recipe: the recipe; its ``data`` are empty if other data were given.
        data: the training data.
        state: the state, with the method and the optimizers of the current stage.
        schedule: the schedule of the current stage.
        evaluator: evaluates networks on the test part.

    Raises:
        UserError: if data and recipe do not fit together.

    Example:
        >>> from dualstudent import load_recipe
        >>> trainer = Trainer(load_recipe("demo", ["schedule.epochs=1", "data.images=500"]))
        >>> while not trainer.done:
        ...     record = trainer.advance()
        >>> sorted(record)
        ['epoch', 'learning_rate', 'loss', 'ramp', 'step']
    """

    state: TrainState
    schedule: Schedule
    evaluator: Evaluator
    _loader: BatchLoader

    def __init__(
        self,
        recipe: Recipe,
        data: PreparedData | None = None,
        check: Callable[[PreparedData], None] = lambda data: None,
        stage: int = 0,
        team: Team | None = None,
    ) -> None:
        self.recipe = recipe = use_data(recipe, data)
        self.team = team or Team(build_fabric(recipe.device))
        self.fabric, self._divided = self.team.fabric, DividedRows(self.team.shard)
        prepared = data or prepare(
            recipe.data, recipe.seed, recipe.transforms, recipe.normalization
        )
        self.data = use_trunk(recipe, prepared)
        check(self.data)
        self._stages = recipe.split_stages()
        self.enter_stage(stage)
        if stage == 0:
            self._check_later_stages()

    @property
    def method(self) -> Method:
        """The method of the current stage."""
        return self.state.method

    @property
    def total_steps(self) -> int:
        """Number of steps of all stages."""
        return self.recipe.epochs * self.schedule.steps_per_epoch

    @property
    def tests_source(self) -> bool:
        """Whether networks that normalize by domain are tested on samples of the source."""
        by_domain = self.recipe.network.batch_norm == "by-domain"
        return by_domain and self.recipe.data.evaluated_part == "source validation"

    @property
    def done(self) -> bool:
        return self.state.step >= self.total_steps

    def advance(self) -> dict[str, Any] | None:
        """Take the next step; at the end of an epoch, return its record for the metrics.

        Raises:
            LossNotFinite: if the training diverged; checked every 50 steps and every epoch.
        """
        length = self.schedule.steps_per_epoch
        self.enter_due_stage()
        with preserve_rng():
            self.state.add(self.take_step(self.state.step))
            self.state.step += 1
            if self.state.step % _STEPS_BETWEEN_CHECKS == 0:
                self.check_finite()
            return None if self.state.step % length else self._finish_epoch()

    def enter_due_stage(self) -> bool:
        """Enter the next stage if the current one has ended; return whether it is the last."""
        if self.state.step != self._stage_end:
            return False
        self._enter_stage(self.state.stage + 1, self.state)
        return self.state.stage == len(self._stages) - 1

    def take_step(self, step: int) -> list[StudentLoss]:
        """Take step ``step`` of the current stage; its randomness depends on (seed, step)."""
        within = step - self._stage_start
        seed_rng(self.recipe.seed, "step", step)
        self.method.before_step()
        with self._divided:
            terms = self._wrapped(self._loader.batch(step), self.schedule.ramp(within))
            losses = [StudentLoss(each) for each in terms]
            total = torch.stack([loss.total for loss in losses]).sum()
            # Each process has the gradient of its rows. Their sum is that of the loss, but DDP
            # computes their mean.
            self.fabric.backward(total * self.fabric.world_size)
        for optimizer in self.state.optimizers:
            if self._clip_norm is not None:
                clip_gradient(optimizer, self._clip_norm)
            set_learning_rate(optimizer, self.schedule.learning_rate(within))
            optimizer.step()
            optimizer.zero_grad()
        self.method.after_step(within)
        if self.recipe.ema is not None:
            self.method.update_averages(within, self.recipe.ema.decay)
        return losses

    def end_epoch(self, epoch: int, steps: Iterable[int]) -> None:
        """Let the method end epoch ``epoch`` of the current stage, which consisted of ``steps``."""
        with self._divided:
            self.method.after_epoch(epoch, map(self._loader.batch, steps))

    def check_finite(self) -> None:
        """Check that all losses of this epoch are finite.

        Raises:
            LossNotFinite: otherwise.
        """
        if self.state.sums is None:
            return
        broken = self.state.find_broken(self.state.sums)
        if broken is None:
            return
        student, term = broken
        rate = self._stages[self.state.stage].optimizer.learning_rate
        raise LossNotFinite(
            f"the loss is no longer finite: {term} of student {student + 1}, within the "
            f"{_STEPS_BETWEEN_CHECKS} steps before step {self.state.step}; try a smaller "
            f"optimizer.learning_rate than {rate:g}, a longer schedule.rampup_epochs or smaller "
            "weights of the method"
        )

    def check_weights(self) -> None:
        """Check that all weights are finite.

        Raises:
            LossNotFinite: otherwise.
        """
        if not all(bool(p.isfinite().all()) for p in self.method.parameters()):
            raise LossNotFinite(
                f"weights are no longer finite at step {self.state.step}; try a smaller "
                "optimizer.learning_rate"
            )

    def evaluate(self) -> dict[str, Any]:
        """Evaluate after an epoch; return the figures for the metrics.

        They are empty if the recipe does not evaluate this epoch.
        """
        epoch = self.state.step // self.schedule.steps_per_epoch
        if epoch % self.recipe.evaluation.every and not self.done:
            return {"test": {}}
        found = self.evaluator.evaluate(self.method.evaluated)
        tested = {
            "test": {name: dataclasses.asdict(each) for name, each in found.networks.items()},
            "distances": {pair: dataclasses.asdict(each) for pair, each in found.distances.items()},
        }
        return tested | ({"tracked": found.tracked} if found.tracked else {})

    def predict_test(self) -> Predictions:
        """Predict the test or validation part, as an evaluation does."""
        everything = torch.arange(len(self.data.test_labels))
        seed, device = self.recipe.seed, self.fabric.device
        return Predictions.join(
            predict(self.method, self.data.test, everything, seed, device, self.tests_source)
        )

    def enter_stage(self, number: int) -> None:
        """Build the method of stage ``number``, −1 for the last, to load a state of that stage."""
        self._enter_stage(number % len(self._stages), None)

    def has_consistent_state(self) -> bool:
        """Return whether the step and the loss terms of the state can be those of its stage."""
        students = range(len(self.method.students))
        known = all(student in students for student, _ in self.state.terms)
        return known and self._stage_start <= self.state.step <= self._stage_end

    def close(self) -> None:
        """Stop the worker processes that make batches, if there are any."""
        self._loader.close()

    def _build_method(self, recipe: Recipe, before: Method | None) -> Method:
        method = build_method(recipe, self.data, before)
        check_strong_views(method, self.data)
        check_normalization(recipe, self.data)
        check_domains(recipe, self.data)
        if method.lone_unlabeled and not self.data.fully_labeled:
            check_batch_norm(method, recipe, self.team.shard.world_size)
        return method

    def _check_later_stages(self) -> None:
        """Build the methods of all stages once, so that a mistake shows before any training."""
        before = self.method
        for recipe in self._stages[1:]:
            method = self._build_method(recipe, before)
            now, then = len(method.students), len(before.students)
            if now != then:
                others = "start from their initial state" if now > then else "are no longer used"
                warnings.warn(
                    f"the stage of {recipe.method.name} has {now} student(s), the one before "
                    f"{then}: the others {others}",
                    stacklevel=3,
                )
            before = method

    def _enter_stage(self, number: int, before: TrainState | None) -> None:
        recipe, device = self._stages[number], self.fabric.device
        method = self._build_method(recipe, None if before is None else before.method)
        if before is not None:
            self._loader.close()
        self._loader = BatchLoader(
            self.data,
            recipe.batch,
            recipe.seed,
            method.views,
            device,
            self.team.shard,
            partial(gather_rows, shard=self.team.shard),
            mark=recipe.network.batch_norm == "by-domain",
        )
        length = self._loader.steps_per_epoch
        self.schedule = Schedule(recipe.schedule, recipe.optimizer.learning_rate, length)
        self._stage_start = sum(each.schedule.epochs for each in self._stages[:number]) * length
        self._stage_end = self._stage_start + self.schedule.total_steps
        self._clip_norm = recipe.optimizer.clip_norm
        if recipe.device.sync_batch_norm:
            _synchronize_batch_norm(method, device)
        self._divided.divide(method)
        # The wrapped method runs the passes on the device; the plain one holds the state.
        self._wrapped, *optimizers = self.fabric.setup(
            method, *(recipe.optimizer.build(student) for student in method.students)
        )
        self.evaluator = Evaluator(
            self.data.test,
            self.data.test_labels,
            method.confidence_threshold,
            recipe.seed,
            recipe.evaluation.track,
            device,
            self.tests_source,
        )
        step, seconds = (0, 0.0) if before is None else (before.step, before.seconds)
        self.state = TrainState(method, optimizers, number, step, seconds=seconds)
        method.train()

    def _finish_epoch(self) -> dict[str, Any]:
        self.check_finite()
        state, length = self.state, self.schedule.steps_per_epoch
        epoch, last = state.step // length, state.step - 1
        seed_rng(self.recipe.seed, "epoch", epoch - 1)
        steps = range(state.step - length, state.step)
        self.end_epoch((last - self._stage_start) // length, steps)
        means = None if state.sums is None else state.sums / length
        record = {
            "epoch": epoch,
            "step": state.step,
            "learning_rate": self.schedule.learning_rate(last - self._stage_start),
            "ramp": self.schedule.ramp(last - self._stage_start),
            "loss": state.split_by_student(means),
        }
        state.sums = None
        if self.recipe.stages:
            record["stage"] = self.recipe.stages[state.stage].name
        return record


def use_data(recipe: Recipe, data: PreparedData | None) -> Recipe:
    """Return the recipe of a run on ``data``: it must not name data that the run never saw.

    Raises:
        UserError: if the data cannot be handed to other processes.
    """
    origin = Origin(recipe.data, recipe.seed, recipe.transforms, recipe.normalization)
    if data is None or data.origin == origin:
        return recipe
    if recipe.device.processes > 1:
        raise UserError(
            f"device.processes = {recipe.device.processes} needs data that every process can read, "
            "not data handed over from Python; use 1, or start your program with torchrun"
        )
    return recipe.model_copy(update={"data": DataSettings()})


def build_method(recipe: Recipe, data: PreparedData, before: Method | None = None) -> Method:
    """Build the method of a recipe.

    Args:
        recipe: recipe of one stage.
        data: data of the run.
        before: the method of the stage before; student i continues with the weights of its
            student i. Default: all students are newly initialized.

    Raises:
        UserError: if the method or network does not suit the data.
    """
    channels, *size = shape = data.train.shape
    image_size = min(size) if size else None
    classes = len(data.classes)
    networks = recipe.method.networks(recipe.network)
    students = [
        build_network(network, channels, classes, image_size, recipe.seed, number)
        for number, network in enumerate(networks)
    ]
    if not all(map(is_ours, networks)):
        _try_students(students, shape, classes)
    # First, so that teachers and averages are copies of these weights.
    if before is None:
        _fit_students(students, data)
    else:
        _continue_students(before, students, recipe.method.name)
    trained_blocks = recipe.optimizer.trained_blocks if recipe.optimizer.trunk_scale else 0
    if trained_blocks is not None:
        for student in students:  # first, too: copies of a student are frozen like it
            student.freeze_trunk(trained_blocks)
    method = find_method(recipe.method)(students, recipe.method)
    task = Task(
        recipe.schedule.epochs,
        len(data.labels),
        classes,
        shape,
        data.train.value_range,
        len(data.unlabeled),
        tuple(data.labels[data.labeled].bincount(minlength=classes).tolist()),
    )
    method.begin(task)
    if recipe.ema is not None:
        method.keep_averages()
    return method


def _try_students(students: Sequence[Network], shape: tuple[int, ...], classes: int) -> None:
    """Show two black samples to networks of others, so that a mistake shows before any training.

    Raises:
        UserError: if they fail, or return other shapes than a prediction has.
    """
    samples = torch.zeros(2, *shape)
    for student in students:
        name = type(student).__name__
        try:
            with evaluation_mode(student):
                found = student(samples)
        except UserError:
            raise
        except Exception as error:  # any code may run here
            raise UserError(
                f"the network {name} fails on samples {tuple(samples.shape)}: "
                f"{type(error).__name__}: {' '.join(str(error).split())}"
            ) from error
        check_prediction(set(), student, (samples,), found)
        if (count := found.class_logits.shape[1]) != classes:
            raise UserError(f"the network {name} has {count} classes, the data {classes}")


def _fit_students(students: Sequence[Network], data: PreparedData) -> None:
    """Load pretrained weights, and show images to networks that depend on them."""
    samples = data.train
    if len(samples) == 0:
        return  # weights and all else are read from a model
    for number, student in enumerate(students):
        load_start(student, number, data.classes)
    if all(type(each).fit_to is Network.fit_to for each in students):
        return
    most = max(1, _PIXELS_TO_FIT // math.prod(samples.shape[1:]))  # large photos fit into memory
    count = min(_IMAGES_TO_FIT, most, len(samples))
    indices = torch.linspace(0, len(samples) - 1, count).long()
    try:
        (images,) = samples.make_views(indices, [None])
    except BrokenSamples as error:
        whole = [row for row in range(len(indices)) if row not in error.reasons]
        (images,) = samples.make_views(indices[whole], [None])
    for student in students:
        student.fit_to(images)


def _continue_students(before: Method, students: Sequence[nn.Module], name: str) -> None:
    """Copy the weights of student i of the stage before to student i."""
    for old, new in zip(before.students, students, strict=False):
        try:
            new.load_state_dict(old.state_dict())
        except RuntimeError as error:
            raise UserError(
                f"the stage of {name} cannot go on with the students of "
                f"{before.settings.name}: they are other networks"
            ) from error


def _synchronize_batch_norm(method: Method, device: torch.device) -> None:
    """Let batch norm use the rows of all processes; torch can do that on GPUs of NVIDIA only."""
    if device.type != "cuda":
        raise UserError(
            f"device.sync_batch_norm needs GPUs of NVIDIA, but the device is {device.type!r}; "
            "leave it out, and each process normalizes its own rows"
        )
    for network in method.modules():
        if isinstance(network, Network):
            nn.SyncBatchNorm.convert_sync_batchnorm(network)  # type: ignore[no-untyped-call]
