"""Where the time goes, as ratios: one table, and ``results/bench/ratios.csv``.

    make bench        # or: python -m tests.bench [--seconds 15] [--only TEXT]

The two things that a row compares take turns in one process, so that both see the same machine;
the figure is the median over the ratios of neighbors, with the middle half of them. One thread,
whose CPU time counts; by the clock where a row waits for files or other processes. Run it while
nothing else runs.

A step is all that ``Trainer.advance`` does. The bare passes are the forward passes of the same
networks on the same rows, the backward pass from the sum of their logits, and the steps of plain
optimizers: no data, views, losses, teacher, random numbers, records or checks.
"""

import argparse
import csv
import io
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from dualstudent import (
    ImageSamples,
    Normalization,
    Trainer,
    Transform,
    Transforms,
    load_recipe,
)
from dualstudent.data.batching.loader import BatchLoader, BatchSettings
from dualstudent.data.images.decoding import decode
from dualstudent.data.prepared import PreparedData
from dualstudent.errors import NotKeptWarning
from dualstudent.recipes.schema import Recipe
from dualstudent.training.distributed import join_team
from dualstudent.training.inference import evaluation_mode
from tests.bench import textbook

OUT = Path("results/bench/ratios.csv")
DIGITS = ["batch.size=256", "batch.labeled=32", "data.labels=320"]
METHODS = {
    "Dual Student": ["method.name=dual-student"],
    "four students": ["method.name=multiple-student", "method.students=4"],
    "Mean Teacher": ["method.name=mean-teacher"],
    "FixMatch": ["method.name=fixmatch", "transforms.strong.randaugment=2"],
}
NETWORKS = {
    "digits CNN, batch 256": (DIGITS, 1.05),
    "13-layer CNN on digits, batch 16": (
        ["network.name=cnn13", "batch.size=16", "batch.labeled=4"],
        1.02,
    ),
    "whitened CNN, batch 64": (
        ["network.name=whitened-cnn", "batch.size=64", "batch.labeled=16"],
        1.05,
    ),
    "quick CNN, batch 64": (["network.name=quick-cnn", "batch.size=64", "batch.labeled=16"], 1.05),
}


@dataclass(frozen=True)
class Row:
    """What is compared, and the goal for the ratio."""

    name: str
    goal: str
    ratios: Callable[[float], list[float]]


def take_turns(
    one: Callable[[], object],
    other: Callable[[], object],
    limit: float,
    clock: Callable[[], float] = time.process_time,
) -> list[float]:
    """Ratios of the times of ``one`` and ``other``, which take turns for ``limit`` seconds."""
    for warm_up in (one, other, one, other):
        warm_up()
    ratios: list[float] = []
    end = time.perf_counter() + limit
    while len(ratios) < 5 or (time.perf_counter() < end and len(ratios) < 200):
        ratios.append(measure(one, clock) / measure(other, clock))
    return ratios


def measure(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    started = clock()
    work()
    return clock() - started


class Steps:
    """Steps of a recipe, one after the other, and the bare network passes of one of them."""

    def __init__(self, recipe: Recipe) -> None:
        self.trainer = Trainer(recipe)

    def take(self) -> None:
        self.trainer.advance()

    def keep_batch(self) -> None:
        """From now on, use one batch that lies ready: the cost of its views is apart."""
        ready = self.trainer._loader.batch(0)
        self.trainer._loader.batch = lambda step: ready  # type: ignore[method-assign]

    def make_bare(self) -> Callable[[], None]:
        """Record the passes of a step; return what repeats only them, and the optimizer steps."""
        passes: list[tuple[nn.Module, Tensor, bool]] = []
        method = self.trainer.method
        networks = dict.fromkeys([*method.students, *method.networks.values()])
        handles = [
            network.register_forward_pre_hook(
                lambda module, inputs: passes.append(
                    (module, inputs[0].detach(), torch.is_grad_enabled())
                )
            )
            for network in networks
        ]
        self.take()
        for handle in handles:
            handle.remove()
        optimizers = [
            torch.optim.SGD(student.parameters(), 1e-9, 0.9, weight_decay=1e-4, nesterov=True)
            for student in method.students
        ]

        def repeat() -> None:
            total = torch.zeros(())
            for network, rows, with_gradient in passes:
                with torch.set_grad_enabled(with_gradient):
                    found = network(rows)
                if with_gradient:
                    total = total + found.class_logits.sum() + found.consistency_logits.sum()
            torch.autograd.backward(total)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()

        return repeat


def compare_step(changes: list[str], views_apart: bool, limit: float) -> list[float]:
    steps = Steps(load_recipe("digits", changes))
    bare = steps.make_bare()
    if views_apart:
        steps.keep_batch()
    return take_turns(steps.take, bare, limit)


def compare_views(limit: float) -> list[float]:
    """Strong views of FixMatch over the bare passes of its step."""
    steps = Steps(load_recipe("digits", [*DIGITS, *METHODS["FixMatch"]]))
    loader, numbers = steps.trainer._loader, iter(range(10**9))
    return take_turns(lambda: loader.batch(next(numbers)), steps.make_bare(), limit)


def compare_textbook(limit: float) -> list[float]:
    steps = Steps(load_recipe("digits", DIGITS))
    data, students = steps.trainer.data, list(steps.trainer.method.students)
    assert isinstance(data.train, ImageSamples)
    pixels = data.train.read_pixels(torch.arange(len(data.train)))
    batches = textbook.load_batches(pixels, data.labels, 256, 32)
    copies = [type(student)() for student in students]
    optimizers = [
        torch.optim.SGD(copy.parameters(), 0.01, 0.9, weight_decay=1e-4, nesterov=True)
        for copy in copies
    ]
    return take_turns(
        lambda: textbook.take_step(copies, list(optimizers), next(batches)), steps.take, limit
    )


def compare_students(count: int, limit: float) -> list[float]:
    two, many = (
        Steps(
            load_recipe("digits", [*DIGITS, "method.name=multiple-student", f"method.students={n}"])
        )
        for n in (2, count)
    )
    return [ratio * 2 / count for ratio in take_turns(many.take, two.take, limit)]


def make_large(folder: Path, count: int) -> PreparedData:
    """So many black images of 28 × 28 pixels in a mapped file, in memory if 8 GB are free."""
    path = folder / f"{count}.bin"
    with path.open("wb") as file:
        file.truncate(count * 784)
    with path.open("rb", buffering=0) as file:
        while file.read(1 << 24):  # else its first pages would be measured
            pass
    pixels = torch.from_file(str(path), False, count * 784, dtype=torch.uint8)
    samples = ImageSamples(
        pixels.view(count, 1, 28, 28), Transforms(weak=Transform(translate=2)), Normalization()
    )
    indices, labels = torch.arange(count), torch.full((count,), -1)
    labels[:1000] = indices[:1000] % 10
    classes = tuple("0123456789")
    return PreparedData(classes, samples, labels, indices[:1000], indices[1000:], samples, labels)


def compare_sizes(limit: float) -> list[float]:
    """A batch and the bare passes of a step, from many and from few images."""
    settings, passes = BatchSettings(size=256, labeled=32), Steps(load_recipe("digits", DIGITS))
    bare, numbers = passes.make_bare(), iter(range(10**9))
    with TemporaryDirectory() as folder:
        many, few = (
            BatchLoader(make_large(Path(folder), count), settings, 0)
            for count in (10_000_000, 10_000)
        )
        return take_turns(
            lambda: (many.batch(next(numbers)), bare()),
            lambda: (few.batch(next(numbers)), bare()),
            limit,
            time.perf_counter,
        )


def compare_decoding(limit: float) -> list[float]:
    noise = np.random.default_rng(0).integers(0, 256, (300, 400, 3), np.uint8)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "photo.jpg"
        Image.fromarray(noise).resize((400, 300)).save(path)

        def bare() -> None:
            with Image.open(io.BytesIO(path.read_bytes())) as image:
                np.asarray(image.convert("RGB"))

        return take_turns(partial(decode, path, channels=3), bare, limit)


def compare_prediction(limit: float) -> list[float]:
    trainer = Trainer(load_recipe("digits", DIGITS))
    networks, test = trainer.method.evaluated, trainer.data.test
    (images,) = test.make_views(torch.arange(len(test)), [None])
    batches = images.tensor_split(20)

    def bare() -> None:
        with torch.inference_mode(), evaluation_mode(trainer.method):
            for network in networks.values():
                for _ in range(2):  # clean, and a perturbed view for stability
                    for batch in batches:
                        network(batch)

    return take_turns(lambda: trainer.evaluator.evaluate(networks), bare, limit)


def compare_processes(limit: float) -> list[float]:
    """One process with one thread over two with one each: at best 2."""
    alone = Steps(load_recipe("digits", DIGITS))
    recipe = load_recipe("digits", [*DIGITS, "device.processes=2", "device.accelerator=cpu"])
    seconds = [measure(alone.take) for _ in range(8)][2:]
    together = measure_together(recipe)
    return [one / other for one, other in zip(seconds, together, strict=True)]


def measure_together(recipe: Recipe) -> list[float]:
    """Seconds of six steps in two processes, of which this one leads."""
    with join_team(recipe, partial(measure_together, recipe)) as team:
        trainer = Trainer(recipe, team=team)
        trainer.method.train()
        return [measure(partial(trainer.take_step, step)) for step in range(8)][2:]


def list_rows() -> Iterator[Row]:
    for network, (changes, goal) in NETWORKS.items():
        for method, more in METHODS.items():
            apart = method == "FixMatch"
            work = partial(compare_step, [*changes, *more], apart)
            what = "step without views" if apart else "step"
            yield Row(f"{method}, {network}: {what} / bare passes", f"≤ {goal}", work)
    yield Row("FixMatch, digits CNN: views / bare passes", "apart", compare_views)
    yield Row("textbook implementation / this, digits", "≥ 2.5", compare_textbook)
    for count in (4, 8):
        work = partial(compare_students, count)
        yield Row(f"a student of {count} / a student of 2", "0.95 to 1.05", work)
    yield Row("step from 10,000,000 images / from 10,000", "about 1", compare_sizes)
    yield Row("decoding a photo / bare Pillow", "about 1", compare_decoding)
    yield Row("evaluation / bare forward passes", "about 1", compare_prediction)
    yield Row("one process / two processes, on two cores", "at best 2", compare_processes)


def describe(row: Row, seconds: float) -> dict[str, Any]:
    ratios = row.ratios(seconds)
    low, _, high = quantiles(ratios, n=4)
    figures = {"ratio": f"{median(ratios):.3f}", "from": f"{low:.3f}", "to": f"{high:.3f}"}
    return {"row": row.name, "goal": row.goal, **figures, "rounds": len(ratios)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=15, help="for each row")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", NotKeptWarning)  # methods have their own weights
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = [row for row in list_rows() if arguments.only in row.name]
    known = read_known() if arguments.only else {}
    OUT.parent.mkdir(parents=True, exist_ok=True)
    print(f"{'':<70}{'goal':>14}{'ratio':>9}  middle half", flush=True)
    for row in rows:
        found = known[row.name] = describe(row, arguments.seconds)
        write(known)
        spread = f"  {found['from']} to {found['to']}"
        print(f"{row.name:<70}{row.goal:>14}{found['ratio']:>9}{spread}", flush=True)


def read_known() -> dict[str, dict[str, Any]]:
    """Read the rows of an earlier run, of which ``--only`` replaces some."""
    if not OUT.is_file():
        return {}
    with OUT.open(newline="", encoding="utf-8") as file:
        return {row["row"]: row for row in csv.DictReader(file)}


def write(rows: dict[str, dict[str, Any]]) -> None:
    with OUT.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(next(iter(rows.values()))), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[row.name] for row in list_rows() if row.name in rows)
