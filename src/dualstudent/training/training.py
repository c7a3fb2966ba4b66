"""All that a recipe stands for, ready to take steps."""

from collections.abc import Callable

import torch
from torch import nn

from dualstudent.data.batching.loader import BatchLoader
from dualstudent.data.batching.samplers import Shard
from dualstudent.data.prepare import DataSettings, prepare
from dualstudent.data.prepared import PreparedData
from dualstudent.errors import UserError
from dualstudent.generators import derive_seed
from dualstudent.methods import METHODS, Method, StudentLoss, Task
from dualstudent.networks.build import build_network
from dualstudent.optimization.optimizers import set_learning_rate
from dualstudent.optimization.schedules import Schedule
from dualstudent.recipes.schema import Recipe
from dualstudent.training.distributed import build_fabric
from dualstudent.training.evaluation import Evaluator


class Training:
    """Data, students and optimizers of a run; where it stands is for others to know.

    Args:
        recipe: what to build.
        data: what to learn from, instead of what ``recipe.data`` names. Its perturbations are its
            own: ``recipe.transforms`` and ``recipe.normalization`` are not looked at.
        check: is shown the data before anything is built for them, and may refuse them.

    Raises:
        UserError: if data and recipe do not fit together; nothing has been written by then.

    Example:
        >>> from dualstudent import load_recipe
        >>> training = Training(load_recipe("demo"))
        >>> [round(loss.total.item(), 1) for loss in training.take_step(0)]  # doctest: +SKIP
        [2.3, 2.4]
    """

    def __init__(
        self,
        recipe: Recipe,
        data: PreparedData | None = None,
        check: Callable[[PreparedData], None] = lambda data: None,
    ) -> None:
        handed_over = data is not None and data.settings != recipe.data
        if handed_over:  # a recipe must not name data that the run never saw
            recipe = recipe.model_copy(update={"data": DataSettings()})
        _check_can_be_shared(recipe, handed_over)
        self.recipe = recipe
        self.fabric = build_fabric(recipe.device)
        self.data = data or prepare(
            recipe.data, recipe.seed, recipe.transforms, recipe.normalization
        )
        check(self.data)
        self.method = build_method(recipe, self.data)
        device = self.fabric.device
        self._batches = BatchLoader(
            self.data,
            recipe.batch,
            recipe.seed,
            self.method.views,
            device,
            Shard(self.fabric.global_rank, self.fabric.world_size),
        )
        self.schedule = Schedule(
            recipe.schedule, recipe.optimizer.learning_rate, self._batches.steps_per_epoch
        )
        self.evaluator = Evaluator(
            self.data.test,
            self.data.test_labels,
            self.method.confidence_threshold,
            recipe.seed,
            recipe.evaluation.track,
            device,
        )
        # The wrapped method runs the passes on the device; the plain one holds the state.
        self._wrapped, *self.optimizers = self.fabric.setup(
            self.method, *(recipe.optimizer.build(student) for student in self.method.students)
        )

    def take_step(self, step: int) -> list[StudentLoss]:
        """Take step ``step``, counted from 0; all it draws is a function of (seed, step)."""
        rank = self.fabric.global_rank
        torch.manual_seed(derive_seed(self.recipe.seed, "step", step, *([rank] if rank else [])))
        terms = self._wrapped(self._batches.batch(step), self.schedule.ramp(step))
        losses = [StudentLoss(each) for each in terms]
        self.fabric.backward(torch.stack([loss.total for loss in losses]).sum())
        for optimizer in self.optimizers:
            set_learning_rate(optimizer, self.schedule.learning_rate(step))
            optimizer.step()
            optimizer.zero_grad()
        self.method.after_step(step)
        return losses

    def finish_epoch(self, epoch: int) -> None:
        """What the method does at the end of epoch ``epoch``, counted from 0."""
        torch.manual_seed(derive_seed(self.recipe.seed, "epoch", epoch))
        length = self.schedule.steps_per_epoch
        steps = range(epoch * length, (epoch + 1) * length)
        self.method.after_epoch(epoch, (self._batches.batch(step) for step in steps))

    def close(self) -> None:
        """End the worker processes of the batches, if there are any."""
        self._batches.close()


def build_method(recipe: Recipe, data: PreparedData) -> Method:
    """The recipe's method with its students, each in an initial state of its own."""
    channels, *size = shape = data.train.shape
    image_size = min(size) if size else None
    classes = len(data.classes)
    students: list[nn.Module] = [
        build_network(network, channels, classes, image_size, recipe.seed, number)
        for number, network in enumerate(recipe.method.networks(recipe.network))
    ]
    method = _kind(recipe)(students, recipe.method)
    task = Task(recipe.schedule.epochs, len(data.labels), classes, shape, data.train.value_range)
    method.begin(task)
    return method


def _kind(recipe: Recipe) -> type[Method]:
    (kind,) = (method for method in METHODS if method.Settings is type(recipe.method))
    return kind


def _check_can_be_shared(recipe: Recipe, handed_over: bool) -> None:
    if recipe.device.processes == 1:
        return
    if _kind(recipe).remembers_samples:
        raise UserError(
            f"method.name = {recipe.method.name!r} remembers what it said of each sample, which "
            f"device.processes = {recipe.device.processes} would tear apart; use 1"
        )
    if handed_over:
        raise UserError(
            f"device.processes = {recipe.device.processes} needs data that every process can read; "
            "data handed over from Python are in this one only: use 1"
        )
