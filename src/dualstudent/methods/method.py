"""What every method is: students, and how they learn from one batch."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from dualstudent.batch import TWO_VIEWS, Batch, Views
from dualstudent.methods.ema import copy_without_gradient, start_up_decay, update_ema
from dualstudent.networks.network import NetworkSettings
from dualstudent.settings import Settings


@dataclass
class StudentLoss:
    """What one student minimizes in one step.

    Attributes:
        terms: name → scalar, each already multiplied by its weight.
    """

    terms: dict[str, Tensor]

    @property
    def total(self) -> Tensor:
        """The sum of the terms (Eq. 7)."""
        first, *others = self.terms.values()
        return sum(others, start=first)


@dataclass(frozen=True)
class Task:
    """What a method may want to know before it starts.

    Attributes:
        epochs: how long it will train.
        samples: N, how many indices a batch may name.
        classes: C.
        image_shape: (channels, H, W), or (features,).
        value_range: the largest possible value minus the smallest, after normalization.
    """

    epochs: int
    samples: int
    classes: int
    image_shape: tuple[int, ...]
    value_range: float


class MethodSettings(Settings):
    """What can be set of a method; each method adds its own."""

    name: str
    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="share of each label that is spread over all classes"
    )

    @property
    def student_count(self) -> int:
        """How many students, and so optimizers, the method trains."""
        return 1

    def networks(self, network: NetworkSettings) -> list[NetworkSettings]:
        """The network of each student, where ``network`` is what the recipe states for all."""
        return [network] * self.student_count


class Method(nn.Module, ABC):
    """A way to learn from labeled and unlabeled samples.

    A method owns its students and whatever else it must remember (as sub-modules and buffers,
    so that its ``state_dict`` is all there is to save). It knows neither where batches come
    from nor who steps the optimizers: the training loop asks it for losses, runs backward on
    their sum and steps one optimizer per student.

    Args:
        students: as many networks as ``settings.student_count``; each maps a batch of images
            to a :class:`~dualstudent.prediction.Prediction`.
        settings: an instance of the method's ``Settings``; default: its defaults.
    """

    settings: MethodSettings
    Settings: ClassVar[type[MethodSettings]]
    summary: ClassVar[str]
    views: ClassVar[Views] = TWO_VIEWS
    remembers_samples: ClassVar[bool] = False

    def __init__(
        self, students: Sequence[nn.Module], settings: MethodSettings | None = None
    ) -> None:
        super().__init__()
        self.settings = settings = settings or self.Settings()  # type: ignore[call-arg]
        if len(students) != settings.student_count:
            raise ValueError(
                f"{settings.name} trains {settings.student_count} student(s), got {len(students)}"
            )
        _check_different_states(students)
        self.students = nn.ModuleList(students)
        self.averages = nn.ModuleDict()

    @abstractmethod
    def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
        """The loss of each student on ``batch``, in the order of ``students``.

        Args:
            batch: the views that ``views`` asks for.
            ramp: in [0, 1], how much the terms without labels count this early in training.
        """

    def forward(self, batch: Batch, ramp: float) -> list[dict[str, Tensor]]:
        """The terms of :meth:`losses`, so that Fabric and DDP can wrap a method as one module.

        In plain containers: DDP would not find the tensors in others, and average no gradient.
        """
        return [loss.terms for loss in self.losses(batch, ramp)]

    def begin(self, task: Task) -> None:
        """Called once, before anything is trained or written; your own loop calls it too.

        Refuses with a ``UserError`` settings that make no sense for ``task``, and sets up
        (as buffers) what the method has to remember about samples.
        """

    def after_step(self, step: int) -> None:
        """Called after the optimizers took step ``step``, counted from 0."""

    def after_epoch(self, epoch: int, batches: Iterable[Batch]) -> None:
        """Called after epoch ``epoch``, counted from 0, and before the networks are evaluated.

        Args:
            epoch: that has just ended.
            batches: of this epoch once more, made when they are asked for.
        """

    @property
    def networks(self) -> dict[str, nn.Module]:
        """Name → network: the students, and whatever else the method makes of them."""
        if len(self.students) == 1:
            return {"student": self.students[0]}
        return {f"student{i}": student for i, student in enumerate(self.students, start=1)}

    @property
    def evaluated(self) -> dict[str, nn.Module]:
        """Name → network, for all that are evaluated: of students, the averages if there are any.

        See :meth:`keep_averages`.
        """
        averages = dict(self.averages.items())
        return {name: averages.get(name, network) for name, network in self.networks.items()}

    def keep_averages(self) -> None:
        """From now on, evaluate an exponential moving average of each student's weights."""
        for name, network in self.networks.items():
            if any(network is student for student in self.students):
                self.averages[name] = copy_without_gradient(network)

    def update_averages(self, step: int, decay: float) -> None:
        """Move the averages after step ``step``, counted from 0; buffers are those of now."""
        for name, average in self.averages.items():
            network = self.networks[name]
            update_ema(average, network, start_up_decay(step, decay))
            for mean, now in zip(average.buffers(), network.buffers(), strict=True):
                mean.copy_(now)

    @property
    def headline(self) -> list[str]:
        """Names in ``evaluated`` whose mean error is the method's result."""
        return list(self.evaluated)

    @property
    def exported(self) -> str:
        """Name in ``evaluated`` of the one network that is taken away for use."""
        return self.headline[0]

    @property
    def confidence_threshold(self) -> float:
        """The ξ of Eq. 3 by which predictions are reported as stable."""
        return 0.8


def _check_different_states(students: Sequence[nn.Module]) -> None:
    """Students in the same state would stay the same and have nothing to teach each other."""
    for (i, one), (j, other) in combinations(enumerate(students, start=1), 2):
        pairs = list(zip(one.parameters(), other.parameters(), strict=False))
        if pairs and all(p.shape == q.shape and torch.equal(p, q) for p, q in pairs):
            raise ValueError(f"students {i} and {j} start in the same state; initialize each anew")
