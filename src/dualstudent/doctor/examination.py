"""Checks, in real training steps, that gradients reach the right networks.

Every loss term must reach its own student and no other network; only students learn; every
student changes; and every network is in training mode when a step begins. A frozen trunk is
exempt: it neither learns nor changes. If the data have two domains, terms of the target must not
depend on samples of the source, but for the statistics of a batch norm over both.
"""

import math
from contextlib import closing

import torch
from torch import Tensor, nn

from dualstudent.doctor.diagnosis import Diagnosis, Reach
from dualstudent.doctor.monitor import GradientMonitor, NothingToLearn
from dualstudent.doctor.parts import name_networks, name_students, split_parts
from dualstudent.generators import preserve_rng
from dualstudent.networks.domains import SOURCE_STATISTICS
from dualstudent.networks.network import find_frozen
from dualstudent.recipes.schema import Recipe
from dualstudent.training.evaluation import Evaluator
from dualstudent.training.trainer import Trainer

_SHORT_EPOCH = 2
_TEST_IMAGES = 100


def examine(subject: Recipe | Trainer, steps: int = 50) -> Diagnosis:
    """Take a few real training steps, with all terms fully ramped up, and check them.

    First comes an epoch of two steps with its evaluation, for methods whose targets come from an
    earlier epoch; then steps until every term has reached its student. If a method has terms that
    begin in a later epoch, as SHOT has, these steps are taken once more after the last epoch.
    Nothing is written, and the global random state is restored.

    Args:
        subject: a recipe, whose last stage is examined if it has several (``split_stages`` gives
            each as a recipe), or a trainer, which is then trained by these steps.
        steps: largest number of steps, each time, before a term that is still 0 counts as off.

    Returns:
        Findings, and the gradient norms of each term by network and part.

    Raises:
        UserError: if the recipe cannot be trained.

    Example:
        >>> from dualstudent import load_recipe
        >>> small = ["data.source=digits-8x8", "batch.size=64", "method.name=supervised"]
        >>> diagnosis = examine(load_recipe("digits", small))
        >>> diagnosis.healthy, [sorted(reach.norms["student"]) for reach in diagnosis.reach]
        (True, [['class head', 'trunk']])
    """
    with preserve_rng():
        trainer = subject if isinstance(subject, Trainer) else Trainer(subject.split_stages()[-1])
        with closing(trainer):
            return _Examination(trainer).run(steps)


class _Examination:
    """An examination of one trainer, and its findings so far."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer, self._method = trainer, trainer.method
        self._students = name_students(self._method)
        self._networks = name_networks(self._method)
        self._parts = split_parts(self._method)
        self._frozen = find_frozen(self._method)
        self._initial = {p: p.detach().clone() for p in self._method.parameters()}
        self._statistics = {name: _statistics(s) for name, s in self._students.items()}
        two_domains = trainer.data.is_target is not None
        self._monitor = GradientMonitor(
            self._method, list(self._students), self._parts, two_domains
        )
        self._steps: list[int] = []  # that were taken
        self._findings: dict[str, None] = {}  # each once, in the order they were made

    def run(self, steps: int) -> Diagnosis:
        schedule = self._trainer.schedule
        self._method.train()
        self._check_owners()
        with self._monitor:
            self._take_steps(min(_SHORT_EPOCH, schedule.steps_per_epoch))
            self._finish_epoch(0)
            self._monitor.reset()
            steps = min(steps, schedule.total_steps)
            self._take_steps(steps, until_all_reach=True)
            self._finish_epoch(schedule.settings.epochs - 1)
            if not (self._method.steady or self._all_reach()):  # terms of later epochs
                self._take_steps(steps, until_all_reach=True)
        reach = self._choose_observations()
        self._check_terms(reach)
        self._check_movement()
        self._check_buffers()
        return Diagnosis(list(self._findings), reach, list(self._networks), self._monitor.steps)

    def _add_finding(self, finding: str) -> None:
        self._findings[finding] = None

    def _take_steps(self, steps: int, until_all_reach: bool = False) -> None:
        for step in range(steps):
            self._steps.append(step)
            self._monitor.learning_rate = self._trainer.schedule.learning_rate(step)
            try:
                self._trainer.take_step(step)
            except NothingToLearn:
                break
            finally:
                self._check_modes("a step")
            if until_all_reach and self._all_reach():
                break

    def _all_reach(self) -> bool:
        return all(each.reaches_student for each in self._choose_observations())

    def _finish_epoch(self, epoch: int) -> None:
        self._trainer.end_epoch(epoch, self._steps[-_SHORT_EPOCH:])
        self._check_modes("the end of an epoch")
        self._quick_evaluator().evaluate(self._method.evaluated)
        self._check_modes("an evaluation")

    def _quick_evaluator(self) -> Evaluator:
        data = self._trainer.data
        return Evaluator(
            data.test,
            data.test_labels[:_TEST_IMAGES],
            self._method.confidence_threshold,
            self._trainer.recipe.seed,
            device=self._trainer.fabric.device,
        )

    def _choose_observations(self) -> list[Reach]:
        """The observation that tells most, for each term of each student."""
        chosen: dict[tuple[str, str], Reach] = {}
        for reach in self._monitor.observations:
            best = chosen.setdefault((reach.student, reach.term), reach)
            if reach.priority > best.priority:
                chosen[reach.student, reach.term] = reach
        return list(chosen.values())

    def _check_owners(self) -> None:
        optimizers = self._trainer.state.optimizers
        owned = {p for each in optimizers for group in each.param_groups for p in group["params"]}
        frozen = {p for layer in self._frozen for p in layer.parameters()}
        for part in self._parts:
            where, parameters = f"the {part.name} of {part.network}", part.parameters.values()
            if part.network in self._students:
                if not (owned | frozen).issuperset(parameters):
                    self._add_finding(f"{where} is not entirely in an optimizer")
            elif not owned.isdisjoint(parameters):
                self._add_finding(f"{where} is in an optimizer, but is no student")
            elif any(p.requires_grad for p in parameters):
                self._add_finding(f"{where} requires gradient, but is no student")

    def _check_modes(self, moment: str) -> None:
        for name, network in self._networks.items():
            if not all(each.training or each in self._frozen for each in network.modules()):
                self._add_finding(f"{name} is left in evaluation mode after {moment}")
        self._method.train()  # so that each moment is checked on its own

    def _check_terms(self, chosen: list[Reach]) -> None:
        if not chosen:
            self._add_finding("no step asks the method for its losses")
        for reach in chosen:
            if not reach.reaches_student and not reach.is_off:
                self._add_finding(f"{reach.term} of {reach.student} does not reach {reach.student}")
        for reach in self._monitor.observations:
            if not math.isfinite(sum(reach.all_norms, start=reach.value)):
                self._add_finding(f"{reach.term} of {reach.student} or its gradient is not finite")
            if reach.term in self._method.target_terms and "source" in reach.domains:
                self._add_finding(
                    f"{reach.term} of {reach.student} depends on samples of the source, but is a "
                    "term of the target"
                )
            for network in reach.norms.keys() - {reach.student}:
                kind = "another student" if network in self._students else "no student"
                self._add_finding(
                    f"{reach.term} of {reach.student} reaches {network}, which is {kind}"
                )

    def _check_movement(self) -> None:
        if self._monitor.has_stale_gradient:
            self._add_finding(
                "there is gradient before backward: a step or the method left it there"
            )
        unmoved = {p for p, initial in self._initial.items() if torch.equal(p, initial)}
        for student, network in self._students.items():
            if unmoved.issuperset(network.parameters()):
                self._add_finding(f"{student} never moves")
                continue
            stuck = unmoved & self._monitor.must_move
            names = [name for name, p in network.named_parameters() if p in stuck]
            if names:
                self._add_finding(f"{student} has gradient but does not move in {', '.join(names)}")

    def _check_buffers(self) -> None:
        domains = {domain for reach in self._monitor.observations for domain in reach.domains}
        for student, before in self._statistics.items():
            now = _statistics(self._students[student])
            stuck = [
                name
                for name, value in now.items()
                if torch.equal(value, before[name])
                # A stage that learns from the target alone leaves those of the source as they are.
                and ("source" in domains or not name.endswith(SOURCE_STATISTICS))
            ]
            if stuck:
                self._add_finding(
                    f"batch-norm statistics of {student} do not move: {', '.join(stuck)}"
                )
        for name, buffer in self._method.named_buffers():
            if buffer.requires_grad:
                self._add_finding(f"the buffer {name} carries gradient from one step to the next")


def _statistics(network: nn.Module) -> dict[str, Tensor]:
    frozen = {buffer for layer in find_frozen(network) for buffer in layer.buffers()}
    return {
        name: buffer.clone()
        for name, buffer in network.named_buffers()
        if name.endswith(("_mean", "_var")) and buffer not in frozen
    }
