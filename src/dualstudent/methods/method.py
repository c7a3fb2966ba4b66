"""The base class of methods: students, and their losses on a batch."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from dualstudent import losses
from dualstudent.batch import TWO_VIEWS, Batch, Views
from dualstudent.errors import UserError
from dualstudent.methods.ema import copy_without_gradient, start_up_decay, update_ema
from dualstudent.methods.hooks import HookWatch, watch_hooks
from dualstudent.networks.network import NetworkSettings
from dualstudent.prediction import check_prediction
from dualstudent.settings import Settings

ClassificationAverage = Literal["batch", "labeled"]
"""Whether ℒ_cls is an average over the batch or over its labeled samples."""

TASK_SETTINGS = frozenset({"classification_average", "confidence_threshold", "label_smoothing"})
"""Settings that belong to the task: a recipe keeps them when its method changes."""


@dataclass
class StudentLoss:
    """The loss of one student in one step.

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
    """Facts about the run that a method may need before training.

    Attributes:
        epochs: length of the training.
        samples: N, the number of training samples; batch indices are in [0, N).
        classes: C.
        image_shape: (channels, H, W), or (features,).
        value_range: the largest possible input value minus the smallest, after normalization.
        unlabeled: number of samples that the unsupervised terms use; None if unknown.
        label_counts: number of labeled samples of each class; None if unknown.
    """

    epochs: int
    samples: int
    classes: int
    image_shape: tuple[int, ...]
    value_range: float
    unlabeled: int | None = None
    label_counts: tuple[int, ...] | None = None


class MethodSettings(Settings):
    """The settings that all methods share; each method adds its own."""

    name: str
    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="share of each label that is spread over all classes"
    )
    confidence_threshold: float = Field(
        0.8,
        ge=0,
        lt=1,
        description="ξ of Eq. 3, above which a prediction counts as confident: in reports, and in "
        "the losses of Dual Student",
    )

    @property
    def student_count(self) -> int:
        """Number of students; each has its own optimizer."""
        return 1

    def compute_classification(
        self, class_logits: Tensor, labels: Tensor, average: ClassificationAverage = "batch"
    ) -> Tensor:
        """Compute ℒ_cls of a student with the label smoothing of these settings.

        Every method has this term, from here, so that the shared settings hold for all.

        Args:
            class_logits: (B, C).
            labels: (B,) int64, −1 where unlabeled.
            average: what the sum is divided by.

        Returns:
            A scalar; 0 if no sample is labeled.
        """
        return losses.classification(class_logits, labels, average == "batch", self.label_smoothing)

    def networks(self, network: NetworkSettings) -> list[NetworkSettings]:
        """Return the network of each student, given the network of the recipe."""
        return [network] * self.student_count


@watch_hooks
class Method(nn.Module, ABC):
    """A way to learn from labeled and unlabeled samples.

    A method holds its students and its other state as sub-modules and buffers, so that its
    ``state_dict`` is complete. The training loop asks it for losses, runs backward on their sum
    and steps one optimizer per student. A loop of your own calls the hooks that the method
    overrides, too: :meth:`begin`, :meth:`after_step`, :meth:`after_epoch`; if it does not,
    :meth:`losses` raises: at once without the first, after 10 steps of an optimizer without the
    second, after 100 passes over the samples without any of the third (it warns after 3).

    Args:
        students: ``settings.student_count`` networks; each maps a batch of inputs to a
            :class:`~dualstudent.prediction.Prediction`; :func:`dualstudent.as_student` makes one
            of any module.
        settings: an instance of the class attribute ``Settings``; default: its defaults.

    Attributes:
        Settings: the class of the method's settings.
        summary: one line for ``dualstudent methods``.
        views: the views that the method needs; of an instance, those of its settings.
        steady: whether the same parameters get a gradient in every step.
        target_terms: names of loss terms that must not depend on samples of the source domain.
        lone_unlabeled: whether a network gets the unlabeled samples of a batch in a pass of their
            own, in which batch norm needs two of them.
        thresholds: names of settings that a top probability must reach for a sample to teach.
    """

    settings: MethodSettings
    Settings: ClassVar[type[MethodSettings]]
    summary: ClassVar[str]
    views: Views = TWO_VIEWS
    steady: ClassVar[bool] = True
    target_terms: ClassVar[frozenset[str]] = frozenset()
    lone_unlabeled: ClassVar[bool] = False
    thresholds: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        watch_hooks(cls)

    def __init__(
        self, students: Sequence[nn.Module], settings: MethodSettings | None = None
    ) -> None:
        super().__init__()
        self.settings = settings = settings or self.Settings()  # type: ignore[call-arg]
        self.views = self.choose_views(settings)
        if len(students) != settings.student_count:
            raise UserError(
                f"{settings.name} trains {settings.student_count} student(s), got {len(students)}"
            )
        _check_different_states(students)
        self.students = nn.ModuleList(students)
        self.widths: set[int] = set()  # of the logits that the students returned
        for student in students:  # copies of it are checked, too
            student.register_forward_hook(partial(check_prediction, self.widths))
        self.hooks = HookWatch()
        self.averages = nn.ModuleDict()

    @classmethod
    def choose_views(cls, settings: MethodSettings) -> Views:
        """Return the views that the method needs with these settings."""
        return cls.views

    @abstractmethod
    def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
        """Compute the loss of each student on ``batch``, in the order of ``students``.

        Args:
            batch: has the views that ``views`` asks for.
            ramp: factor of the unsupervised terms in [0, 1]; grows early in training.

        Raises:
            UserError: if a student returns something else than a prediction, the training loop did
                not call a hook that the method needs, or the batch does not suit.
        """

    def forward(self, batch: Batch, ramp: float) -> list[dict[str, Tensor]]:
        """Return the terms of :meth:`losses`, so that Fabric and DDP can wrap the method.

        DDP finds tensors, and so averages gradients, in plain containers only.
        """
        return [loss.terms for loss in self.losses(batch, ramp)]

    def begin(self, task: Task) -> None:
        """Called once before training; your own training loop must call it, too.

        Creates the buffers for what the method remembers about samples.

        Raises:
            UserError: if the settings make no sense for ``task``.
        """

    def before_step(self) -> None:
        """Called before every step, for random choices that do not depend on the batch."""

    def after_step(self, step: int) -> None:
        """Called after the optimizers took step ``step``, counted from 0."""

    def after_epoch(self, epoch: int, batches: Iterable[Batch]) -> None:
        """Called after epoch ``epoch``, counted from 0, and before the networks are evaluated.

        Args:
            epoch: the epoch that has just ended.
            batches: the batches of this epoch once more, made lazily.
        """

    @property
    def networks(self) -> dict[str, nn.Module]:
        """Name → network: the students and the networks derived from them, such as teachers."""
        if len(self.students) == 1:
            return {"student": self.students[0]}
        return {f"student{i}": student for i, student in enumerate(self.students, start=1)}

    @property
    def evaluated(self) -> dict[str, nn.Module]:
        """Name → network to evaluate: ``networks``, with students replaced by their averages.

        There are averages only after :meth:`keep_averages`.
        """
        averages = dict(self.averages.items())
        return {name: averages.get(name, network) for name, network in self.networks.items()}

    def keep_averages(self) -> None:
        """Keep an exponential moving average of each student's weights and evaluate it instead."""
        for name, network in self.networks.items():
            if any(network is student for student in self.students):
                self.averages[name] = copy_without_gradient(network)

    def update_averages(self, step: int, decay: float) -> None:
        """Update the averages after step ``step``, counted from 0; buffers are copied."""
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
        """Name in ``evaluated`` of the network to export."""
        return self.headline[0]

    @property
    def confidence_threshold(self) -> float:
        """The ξ of Eq. 3 above which predictions are reported as stable."""
        return self.settings.confidence_threshold


def _check_different_states(students: Sequence[nn.Module]) -> None:
    """Check that no two students start equal: they would stay equal and learn nothing."""
    for (i, one), (j, other) in combinations(enumerate(students, start=1), 2):
        if not {id(p) for p in one.parameters()}.isdisjoint(map(id, other.parameters())):
            raise UserError(f"students {i} and {j} share weights; give each a module of its own")
        pairs = list(zip(one.parameters(), other.parameters(), strict=False))
        if pairs and all(p.shape == q.shape and torch.equal(p, q) for p, q in pairs):
            raise UserError(f"students {i} and {j} start in the same state; initialize each anew")
