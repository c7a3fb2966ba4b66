"""Do two students that label strong views for each other beat FixMatch in the same time?

    python benchmarks/two_students.py         # about 25 minutes on one core

FixMatch is one student that labels its strong views by its own weak ones. Here two students, each
with half of the steps, so in the same time, share their labels in different ways. 10 labels a
class, validation images from the training part, 3 seeds. The error is the mean of the students, and
that of their average prediction. It can be stopped at any time and continues when called again.
Writes `results/two-students/`.
"""

import math
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from dualstudent import Draw, PreparedData, Transforms, WhitenedCNN
from dualstudent.stability import instability, is_guided, is_stable
from tables import run_trials, spread, spread_of_differences, write_table
from validation_tasks import GRAY, prepare_task

RESULTS = Path(__file__).parents[1] / "results" / "two-students"
TASKS = ("mnist-5k", "SVHN")
SEEDS = range(3)
STEPS, LABELED, UNLABELED, PEAK = 600, 32, 96, 0.2
STRONG = {"randaugment": 2, "affine": (10.0, 0.1, 0.1, 0.05), "cutout": 0.5}
ANY_COLOR = (0.0, 0.0, 1.0, 0.5)


class Answers(NamedTuple):
    """(n, C) probabilities of one student for weak and strong views, without gradient."""

    weak: Tensor
    strong: Tensor


Rule = Callable[[Answers, Answers], tuple[Tensor, Tensor]]
"""Maps the answers of a student and of the other one to pseudo-labels and where they count."""


def by_itself(own: Answers, _: Answers) -> tuple[Tensor, Tensor]:
    confidence, labels = own.weak.max(dim=1)
    return labels, confidence >= 0.95


def by_the_other(own: Answers, other: Answers) -> tuple[Tensor, Tensor]:
    return by_itself(other, own)


def by_both(own: Answers, other: Answers) -> tuple[Tensor, Tensor]:
    confidence, labels = ((own.weak + other.weak) / 2).max(dim=1)
    return labels, confidence >= 0.8


def where_they_agree(own: Answers, other: Answers) -> tuple[Tensor, Tensor]:
    confidence, labels = own.weak.max(dim=1)
    second, others = other.weak.max(dim=1)
    return labels, (labels == others) & (torch.minimum(confidence, second) >= 0.8)


def by_the_more_stable(own: Answers, other: Answers) -> tuple[Tensor, Tensor]:
    """Eq. 3 to 6 with the strong view as the perturbed one; the rest as in FixMatch."""
    guided = is_guided(
        is_stable(own.weak, own.strong, 0.8),
        is_stable(other.weak, other.strong, 0.8),
        instability(own.weak, own.strong),
        instability(other.weak, other.strong),
    )
    labels, confident = by_itself(own, other)
    return torch.where(guided, other.weak.argmax(dim=1), labels), guided | confident


# name → rule and number of students
VARIANTS: dict[str, tuple[Rule, int]] = {
    "one student: FixMatch": (by_itself, 1),
    "two, each by itself": (by_itself, 2),
    "two, labels of the other": (by_the_other, 2),
    "two, labels of the average": (by_both, 2),
    "two, where they agree": (where_they_agree, 2),
    "two, labels of the more stable": (by_the_more_stable, 2),
}


def main() -> None:
    torch.set_num_threads(1)
    trials = [
        {"seed": seed, "task": task, "variant": variant}
        for seed in SEEDS
        for task in TASKS
        for variant in VARIANTS
    ]
    write_results(run_trials(RESULTS / "errors.csv", trials, measure))


def measure(seed: int, task: str, variant: str) -> dict[str, float]:
    weak = {"translate": 2} | ({} if task in GRAY else {"jitter": ANY_COLOR})
    views = Transforms.model_validate({"weak": weak, "strong": STRONG})
    data = prepare_task(task, 10, seed, views)
    rule, count = VARIANTS[variant]
    torch.manual_seed(seed)
    students = [WhitenedCNN(data.train.shape[0], 10, (16, 32, 64)) for _ in range(count)]
    for student in students:
        student.fit_to(data.train.make_views(torch.arange(512), [None])[0])
    train(students, rule, data, STEPS // count, seed)
    each, average = evaluate(students, data)
    return {"students": round(each, 2), "average": round(average, 2)}


def train(
    students: list[WhitenedCNN], rule: Rule, data: PreparedData, steps: int, seed: int
) -> None:
    optimizers = [
        torch.optim.SGD(s.parameters(), lr=PEAK, momentum=0.9, weight_decay=5e-4, nesterov=True)
        for s in students
    ]
    generator = torch.Generator().manual_seed(seed)
    for step in range(steps):
        rate = PEAK * min(1, step / (0.05 * steps)) * (1 + math.cos(math.pi * step / steps)) / 2
        known = data.labeled[torch.randint(len(data.labeled), (LABELED,), generator=generator)]
        rest = data.unlabeled[torch.randint(len(data.unlabeled), (UNLABELED,), generator=generator)]
        (labeled,) = data.train.make_views(known, [Draw("weak", generator)])
        policies = ["weak", *["strong"] * len(students)]
        views = data.train.make_views(rest, [Draw(p, generator) for p in policies])  # type: ignore[arg-type]
        for loss in compute_losses(students, rule, labeled, data.labels[known], views):
            torch.autograd.backward(loss)
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = rate
            optimizer.step()
            optimizer.zero_grad()


def compute_losses(
    students: list[WhitenedCNN], rule: Rule, labeled: Tensor, labels: Tensor, views: list[Tensor]
) -> list[Tensor]:
    """Losses of all students; views are the weak one, then the strong one of each student."""
    answers, logits = [], []
    for student, strong in zip(students, views[1:], strict=True):
        with torch.no_grad():
            weak = student(views[0]).class_logits.softmax(dim=1)
        logits.append(student(torch.cat((strong, labeled))).class_logits)
        answers.append(Answers(weak, logits[-1][: len(strong)].detach().softmax(dim=1)))
    losses = []
    for number, found in enumerate(logits):
        pseudo, counts = rule(answers[number], answers[-1 - number])
        distance = F.cross_entropy(found[: len(pseudo)], pseudo, reduction="none")
        losses.append(F.cross_entropy(found[len(pseudo) :], labels) + (counts * distance).mean())
    return losses


@torch.no_grad()
def evaluate(students: list[WhitenedCNN], data: PreparedData) -> tuple[float, float]:
    """Mean error of the students, and error of their average."""
    assert data.test is not None
    for student in students:
        student.eval()
    (images,) = data.test.make_views(torch.arange(len(data.test_labels)), [None])
    answers = [
        torch.cat([student(x).class_logits.softmax(dim=1) for x in torch.split(images, 250)])
        for student in students
    ]

    def compute_error(p: Tensor) -> float:
        return 100 * float((p.argmax(dim=1) != data.test_labels).float().mean())

    return fmean(map(compute_error, answers)), compute_error(torch.stack(answers).mean(dim=0))


def write_results(rows: list[dict[str, Any]]) -> None:
    def select(task: str, variant: str, column: str) -> list[float]:
        return [
            float(row[column]) for row in rows if (row["task"], row["variant"]) == (task, variant)
        ]

    alone = next(iter(VARIANTS))
    table = []
    for variant in VARIANTS:
        cells = [variant]
        for task in TASKS:
            errors = select(task, variant, "students")
            cells += [spread(errors), spread(select(task, variant, "average"))]
            cells.append(spread_of_differences(errors, select(task, alone, "students")))
        table.append(cells)
    columns = ["students", "their average", "students against FixMatch"]
    write_table(
        RESULTS / "table.md",
        ["validation error in %", *(f"{task}: {column}" for task in TASKS for column in columns)],
        table,
    )


if __name__ == "__main__":
    main()
