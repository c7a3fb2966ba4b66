"""Do two students that label strong views for each other beat one student in the same time?

    python benchmarks/two_students.py --seeds 3     # about two hours on one core

FixMatch and FreeMatch are one student that labels its strong views by its own weak ones. Here two
students, each with half of the steps, share their labels in different ways; the last ones are Dual
Student over strong views: stability is judged on two weak views, and the more stable student
teaches the other one on its strong view. Everything else is what `train --data` would choose, as
in `choose_method.py`: 10 labels a class, gray images, error on validation images from the training
part, mean of the students. It can be stopped at any time and continues when called again. Writes
`results/two-students/`.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from choose_defaults import train_once
from choose_method import METHODS, STEPS, choose_for
from dualstudent import Batch, Method, MethodSettings, StudentLoss, Task, Views
from dualstudent.stability import instability, is_guided, is_stable
from tables import run_trials, spread, spread_of_differences, write_table

RESULTS = Path(__file__).parents[1] / "results" / "two-students"
TASKS = ("SVHN", "CIFAR-10")
OPPONENTS = ("fixmatch", "fixmatch, aligned", "freematch")
CONFIDENT, DECAY, SMALL = 0.95, 0.999, 1e-6


class Answers(NamedTuple):
    """(n, C) probabilities of one student, without gradient, and the thresholds (C,) of classes."""

    weak: Tensor
    second: Tensor  # another weak view
    strong: Tensor
    thresholds: Tensor

    @property
    def labels(self) -> Tensor:
        return self.weak.argmax(dim=1)

    @property
    def confident(self) -> Tensor:
        return self.weak.amax(dim=1) >= self.thresholds[self.labels]

    @property
    def stable(self) -> Tensor:  # Eq. 3
        return is_stable(self.weak, self.second, self.thresholds[self.labels])


Rule = Callable[[Answers, Answers], tuple[Tensor, Tensor]]
"""Maps the answers of a student and of the other one to pseudo-labels and where they count."""


def by_itself(own: Answers, _: Answers) -> tuple[Tensor, Tensor]:
    return own.labels, own.confident


def by_the_other(own: Answers, other: Answers) -> tuple[Tensor, Tensor]:
    return by_itself(other, own)


def by_both(own: Answers, other: Answers) -> tuple[Tensor, Tensor]:
    confidence, labels = ((own.weak + other.weak) / 2).max(dim=1)
    return labels, confidence >= 0.8


def where_they_agree(own: Answers, other: Answers) -> tuple[Tensor, Tensor]:
    least = torch.minimum(own.weak.amax(dim=1), other.weak.amax(dim=1))
    return own.labels, (own.labels == other.labels) & (least >= 0.8)


def by_the_more_stable_on_strong(own: Answers, other: Answers) -> tuple[Tensor, Tensor]:
    """Eq. 3 to 6 with the strong view as the perturbed one; the rest as in FixMatch."""
    guided = is_guided(
        is_stable(own.weak, own.strong, 0.8),
        is_stable(other.weak, other.strong, 0.8),
        instability(own.weak, own.strong),
        instability(other.weak, other.strong),
    )
    return torch.where(guided, other.labels, own.labels), guided | own.confident


def by_the_more_stable(own: Answers, other: Answers) -> tuple[Tensor, Tensor]:
    """Eq. 3 to 6 on two weak views: on its strong view, a student learns from the other only."""
    guided = is_guided(
        own.stable,
        other.stable,
        instability(own.weak, own.second),
        instability(other.weak, other.second),
    )
    return torch.where(guided, other.labels, own.labels), guided


def by_the_more_stable_or_itself(own: Answers, other: Answers) -> tuple[Tensor, Tensor]:
    """As before, and where it is the more stable one, from itself."""
    labels, guided = by_the_more_stable(own, other)
    return labels, guided | own.stable


RULES: dict[str, Rule] = {
    "itself": by_itself,
    "other": by_the_other,
    "both": by_both,
    "agreement": where_they_agree,
    "strong": by_the_more_stable_on_strong,
    "weak": by_the_more_stable,
    "weak-or-itself": by_the_more_stable_or_itself,
}


class TwoStudentsSettings(MethodSettings):
    """Which rule labels the strong views."""

    name: str = "two_students:TwoStudents"
    rule: str
    adaptive: bool = False  # FreeMatch's thresholds
    aligned: bool = False  # with even classes

    @property
    def student_count(self) -> int:
        return 2


class TwoStudents(Method):
    """Two students, each with a strong view of its own."""

    Settings = TwoStudentsSettings
    settings: TwoStudentsSettings
    mean: Tensor
    confidence: Tensor

    @classmethod
    def choose_views(cls, settings: MethodSettings) -> Views:
        assert isinstance(settings, TwoStudentsSettings)
        views = Views(("weak",), ("weak", "strong", "strong"))
        if settings.rule.startswith("weak"):
            return views._replace(unlabeled=(*views.unlabeled, "weak"))
        return views

    def begin(self, task: Task) -> None:
        self.register_buffer("mean", torch.full((2, task.classes), 1 / task.classes))
        self.register_buffer("confidence", torch.full((2,), 1 / task.classes))

    def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
        known = batch.views[0][~batch.unlabeled]
        labels = torch.cat((batch.labels[batch.unlabeled], batch.labels[~batch.unlabeled]))
        weak = [batch.select_unlabeled(n) for n in (0, 3) if n < len(self.views.unlabeled)]
        logits, answers = [], []
        for number, student in enumerate(self.students):
            with torch.no_grad():
                seen = [student(view).class_logits.softmax(dim=1) for view in weak]
            strong = batch.select_unlabeled(1 + number)
            logits.append(student(torch.cat((strong, known))).class_logits)
            answers.append(self.judge(number, seen, logits[-1][: len(strong)].detach()))
        return [
            self.learn(found, labels, RULES[self.settings.rule](own, other))
            for found, own, other in zip(logits, answers, reversed(answers), strict=True)
        ]

    def judge(self, number: int, seen: Sequence[Tensor], strong: Tensor) -> Answers:
        mean = self.mean[number].lerp_(seen[0].mean(dim=0).float(), 1 - DECAY)
        if self.settings.aligned:
            seen = [F.normalize(p / (mean + SMALL), p=1, dim=1) for p in seen]
        thresholds = torch.full_like(mean, CONFIDENT)
        if self.settings.adaptive:
            top = seen[0].amax(dim=1).mean().float()
            thresholds = self.confidence[number].lerp_(top, 1 - DECAY) * mean / mean.max()
        return Answers(seen[0], seen[-1], strong.softmax(dim=1), thresholds)

    def learn(self, logits: Tensor, labels: Tensor, found: tuple[Tensor, Tensor]) -> StudentLoss:
        pseudo, counts = found
        distance = F.cross_entropy(logits[: len(pseudo)], pseudo, reduction="none")
        classification = self.settings.compute_classification(logits, labels, "labeled")
        terms = {"classification": classification, "pseudo_labels": (counts * distance).mean()}
        return StudentLoss(terms)


# name → settings of two students
PAIRS: dict[str, dict[str, Any]] = {
    "the more stable on weak views": {"rule": "weak"},
    "… or itself": {"rule": "weak-or-itself"},
    "… or itself, adaptive": {"rule": "weak-or-itself", "adaptive": True},
    "… or itself, aligned": {"rule": "weak-or-itself", "aligned": True},
    "… or itself, adaptive, aligned": {
        "rule": "weak-or-itself",
        "adaptive": True,
        "aligned": True,
    },
    "each by itself": {"rule": "itself"},
    "labels of the other": {"rule": "other"},
    "labels of the average": {"rule": "both"},
    "where they agree": {"rule": "agreement"},
    "the more stable, judged on strong views": {"rule": "strong"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--variants", default=";".join((*OPPONENTS, *PAIRS)), help="with ';'")
    asked = parser.parse_args()
    seeds = range(asked.seeds)
    torch.set_num_threads(1)
    for variant in asked.variants.split(";"):
        trials = [
            {"task": task, "variant": variant, "seed": seed} for task in TASKS for seed in seeds
        ]
        write_results(run_trials(RESULTS / "trials.csv", trials, measure))


def measure(task: str, variant: str, seed: int) -> dict[str, float]:
    if variant in OPPONENTS:
        return train_once(*choose_for(task, {"method": METHODS[variant]}, seed))
    # All but the method is FixMatch's.
    recipe, data = choose_for(task, {"method": METHODS["fixmatch"]}, seed, STEPS / 2)
    settings = TwoStudentsSettings(**PAIRS[variant])
    return train_once(recipe.model_copy(update={"method": settings}), data)


def write_results(rows: list[dict[str, Any]]) -> None:
    def select(task: str, variant: str, column: str = "error") -> dict[str, float]:
        found = (row for row in rows if (row["task"], row["variant"]) == (task, variant))
        return {row["seed"]: float(row[column]) for row in found}

    table = []
    for variant in dict.fromkeys(row["variant"] for row in rows):
        cells = [variant]
        for task in TASKS:
            errors, others = select(task, variant), select(task, OPPONENTS[0])
            seconds, both = select(task, variant, "seconds"), errors.keys() & others.keys()
            cells.append(spread(list(errors.values())) if errors else "")
            cells.append(f"{fmean(seconds.values()):.0f}" if seconds else "")
            pairs = [[each[seed] for seed in sorted(both)] for each in (errors, others)]
            cells.append(spread_of_differences(*pairs) if both else "")
        table.append(cells)
    columns = ("error", "seconds", f"minus {OPPONENTS[0]}")
    heads = [f"{task}: {column}" for task in TASKS for column in columns]
    write_table(RESULTS / "table.md", ["validation, error in %", *heads], table)


if __name__ == "__main__":
    main()
