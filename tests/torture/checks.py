"""The checks: each does one kind of harm to many runs and counts what came of it."""

import errno
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from dualstudent import Predictor, Recipe, Run, UserError, prepare_arrays, resume, train
from dualstudent.data.datasets import Images
from dualstudent.data.sources import catalog
from dualstudent.data.sources.bundled import load_digits_8x8
from dualstudent.methods import METHODS
from dualstudent.sealed import write_sealed
from dualstudent.training.verification import verify_run
from tests.support.imagenet import streamed_recipe, write_imagenet
from tests.torture.children import (
    EPOCHS,
    STEPS,
    Acts,
    End,
    find_difference,
    kill_self,
    limit_files,
    name_method,
    on_write,
    run_child,
    tiny_recipe,
    train_tiny,
)
from tests.torture.teaching import find_loss, make_folder

NAMES = [str(kind.Settings.model_fields["name"].default) for kind in METHODS]
Act = Callable[[], object]


@dataclass
class Tally:
    """What came of a check.

    Attributes:
        counts: outcome → how often.
        wrong: what must not happen, in words; empty if all is well.
    """

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Place:
    """A folder to work in, with an undisturbed run of each method, trained when first needed."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._undisturbed = folder, dict[str, tuple[Run, float]]()

    def undisturbed(self, method: str = "dual-student") -> tuple[Run, float]:
        """The run, and how many seconds it took."""
        if method not in self._undisturbed:
            folder, begun = self._folder / f"whole-{method}", time.monotonic()
            end = run_child(partial(train_tiny, tiny_recipe(method), folder))
            if end.kind != "finished":
                raise RuntimeError(f"{method}: {end}")
            self._undisturbed[method] = Run(folder), time.monotonic() - begun
        return self._undisturbed[method]

    def new(self) -> Path:
        """The path of a run that does not exist yet."""
        folder = self._folder / "disturbed" / "run"
        shutil.rmtree(folder.parent, ignore_errors=True)
        folder.parent.mkdir(parents=True)
        return folder

    def copy(self, run: Run) -> Run:
        """A copy of a run, to be harmed."""
        return Run(Path(shutil.copytree(run.folder, self.new())))

    def stopped(self, *changes: str) -> Run:
        """A run with checkpoints of the steps 5 and 9."""
        folder, recipe = self._folder / "stopped", tiny_recipe("dual-student", *changes)
        shutil.rmtree(folder, ignore_errors=True)
        for step in (5, 9):
            stop = Acts(lambda: signal.raise_signal(signal.SIGTERM), step)
            run_child(partial(train_tiny, recipe, folder, stop))
        return Run(folder)

    def finish(self, folder: Path, tally: Tally, what: str, method: str = "dual-student") -> End:
        """Train a run to its end without harm, which must give the undisturbed run."""
        end = run_child(partial(train_tiny, tiny_recipe(method), folder))
        self.compare(end, folder, tally, what, method)
        return end

    def compare(
        self, end: End, folder: Path, tally: Tally, what: str, method: str = "dual-student"
    ) -> None:
        """Count a finished run as equal to the undisturbed one, or as wrong."""
        if end.kind != "finished":
            tally.wrong.append(f"{what}: {end}")
            return
        difference = find_difference(Run(folder), self.undisturbed(method)[0])
        if difference:
            tally.wrong.append(f"{what}: differs in {difference}")
        else:
            tally.counts["equal"] += 1


def check_kills(method: str, kills: int, place: Place) -> Tally:
    """SIGKILL after a step, at an epoch's end, before a write, in its middle, and at any time."""
    tally, draw = Tally(), random.Random(method)
    recipe, seconds = tiny_recipe(method), place.undisturbed(method)[1]
    while tally.counts["killed"] < kills:
        folder, moments = place.new(), list[str]()
        for _ in range(draw.randint(1, 8)):
            name, harm, delay = _draw_kill(draw, recipe, folder, seconds)
            end = run_child(harm, delay)
            moments.append(name)
            tally.counts["killed"] += end.kind == "killed"
            if end.kind == "finished":
                break
            if end.kind != "killed":
                tally.wrong.append(f"{', '.join(moments)}: {end}")
        tally.counts["lives"] += 1
        place.finish(folder, tally, f"killed {', '.join(moments)}", method)
    return tally


def _draw_kill(
    draw: random.Random, recipe: Recipe, folder: Path, seconds: float
) -> tuple[str, Act, float | None]:
    """Name of the moment, what the child does, and when it is killed from outside, if it is."""
    often, kind = draw.random() < 0.5, draw.choice(("step", "epoch", "write", "middle", "time"))
    place = draw.randrange(EPOCHS * STEPS * 4)
    size = int(10 ** draw.uniform(2, 6))

    def work() -> None:
        callback = None
        if kind == "step":
            callback = Acts(kill_self, step=1 + place % (EPOCHS * STEPS))
        elif kind == "epoch":
            callback = Acts(kill_self, epoch=1 + place % EPOCHS)
        elif kind == "write":
            on_write(folder, place, lambda _: kill_self())
        elif kind == "middle":
            limit_files(size, deadly=True)
        train_tiny(recipe, folder, callback, often)

    number = {"middle": size, "time": -1}.get(kind, place)
    return f"{kind} {number}", work, draw.uniform(0, seconds) if kind == "time" else None


def check_failing_writes(problem: str, every: int, place: Place) -> Tally:
    """Every write of a run fails once; then the run is resumed."""
    tally, number = Tally(), 0
    whole = place.undisturbed()[0]
    sizes = sorted({file.stat().st_size for file in whole.folder.iterdir() if file.is_file()})
    while True:
        folder = place.new()
        if problem == "EFBIG":  # half of each file, and all but its last byte
            limits = sorted({limit for size in sizes for limit in (0, size // 2, size - 1)})
            if number >= len(limits):
                return tally
            harm = partial(limit_files, limits[number], deadly=False)
        else:
            fail = partial(_fail, getattr(errno, problem), folder.with_name("failed"))
            harm = partial(on_write, folder, number, fail)
        end = run_child(partial(_harm_and_train, harm, folder))
        if problem != "EFBIG" and not folder.with_name("failed").exists():
            place.compare(end, folder, tally, f"{problem} never")
            return tally  # there are not so many writes
        what = f"{problem} in write {number}"
        tally.counts["failed"] += 1
        left = [path.name for path in folder.parent.rglob("*.partial")]
        if left:
            tally.wrong.append(f"{what} left {left}")
        if end.kind == "refused":
            tally.counts["refused"] += 1
            if "\n" in end.text or str(folder) not in end.text:
                tally.wrong.append(f"{what}: {end.text!r} is not one line with the file")
        elif end.kind == "finished":
            tally.counts["finished with a warning" if end.warnings else "finished"] += 1
        else:
            tally.wrong.append(f"{what}: {end}")
        place.finish(folder, tally, what)
        number += every


def _harm_and_train(harm: Act, folder: Path) -> None:
    harm()
    train_tiny(tiny_recipe(), folder, with_page=True)


def _fail(number: int, note: Path, path: str) -> None:
    note.touch()
    raise OSError(number, os.strerror(number), path)


def check_damaged_stopped(name: str, flips: int, place: Place) -> Tally:
    """A file of a stopped run is cut, emptied, removed or has a flipped bit, then ``resume``."""
    tally, stopped = Tally(), place.stopped()
    for what, damage in list_damages(stopped.folder / name, flips):
        run = place.copy(stopped)
        damage(run.folder / name)
        end = run_child(partial(train_tiny, tiny_recipe(), run.folder))
        if end.kind == "refused":
            tally.counts["refused"] += 1
            if "\n" in end.text or name not in end.text:
                tally.wrong.append(f"{name} {what}: {end.text!r} does not name it in one line")
            continue
        tally.counts["fell back"] += bool(end.warnings)
        place.compare(end, run.folder, tally, f"{name} {what}")
        left = [each for each in verify_run(run, with_data=False) if each.outcome == "error"]
        tally.wrong += [f"{name} {what}: resumed, but {each}" for each in left]
    return tally


def check_damaged_finished(name: str, flips: int, place: Place) -> Tally:
    """A file of a finished run is damaged, then verified and used to predict."""
    tally, whole = Tally(), place.undisturbed()[0]
    run = place.copy(whole)
    image = run.folder.with_name("image.png")
    Image.fromarray(np.eye(8, dtype=np.uint8) * 255).save(image)

    def predict(run: Run) -> list[list[float]]:
        (found,) = Predictor(Run.open(run.folder)).predict([image])
        return found.probabilities.tolist()

    expected = predict(whole)
    path, content = run.folder / name, (whole.folder / name).read_bytes()
    for what, damage in list_damages(whole.folder / name, flips):
        path.write_bytes(content)
        damage(path)
        try:
            refused = any(check.outcome == "error" for check in verify_run(run, with_data=False))
        except UserError:
            refused = True
        tally.counts["refused" if refused else "unchanged in meaning"] += 1
        try:
            used = predict(run)
        except UserError:
            continue
        if used != expected:
            tally.wrong.append(f"{name} {what}: other predictions")
    return tally


def list_damages(path: Path, flips: int) -> Iterator[tuple[str, Callable[[Path], object]]]:
    """Name → what damages a file of this size."""
    size, draw = path.stat().st_size, random.Random(path.name)
    yield "removed", Path.unlink
    yield "emptied", lambda path: path.write_bytes(b"")
    for place in (1, size // 2, size - 1):
        yield f"cut to {place}", partial(_cut, size=place)
    for _ in range(flips):
        place, bit = draw.randrange(size), draw.randrange(8)
        yield f"with bit {bit} of byte {place} flipped", partial(_flip, place=place, bit=bit)


def _cut(path: Path, size: int) -> None:
    os.truncate(path, size)


def _flip(path: Path, place: int, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


def check_signals(name: str, count: int, place: Place) -> Tally:
    """A stop signal at a random moment; the run is resumed."""
    tally, draw, seconds = Tally(), random.Random(name), place.undisturbed()[1]
    number = signal.Signals[name]
    for _ in range(count):
        folder, delay = place.new(), draw.uniform(0, 1.2 * seconds)
        end = run_child(partial(train_tiny, tiny_recipe(), folder), delay, number)
        tally.counts[end.kind] += 1
        # Before and after the training, nothing holds the signal back.
        known = end.kind in ("stopped", "finished", "killed") or "KeyboardInterrupt" in end.text
        if not known:
            tally.wrong.append(f"{name} after {delay:.2f} s: {end}")
        place.finish(folder, tally, f"{name} after {delay:.2f} s")
    return tally


def check_two_processes(count: int, place: Place) -> Tally:
    """Two processes train the same folder at the same time: one does, the other is refused."""
    tally = Tally()
    for _ in range(count):
        folder = place.new()
        meet = Acts(partial(_expect_refusal, partial(train_tiny, tiny_recipe(), folder)), step=5)
        end = run_child(partial(train_tiny, tiny_recipe(), folder, meet))
        tally.counts["refused"] += end.kind == "finished"
        place.compare(end, folder, tally, "with a rival")
    return tally


def _expect_refusal(rival: Act) -> None:
    end = run_child(rival)
    if end.kind != "refused" or "another process" not in end.text:
        raise RuntimeError(f"the second process: {end}")


def check_workers(method: str, place: Place) -> Tally:
    """Images are read by 0, 1 or 3 worker processes: the runs are equal."""
    tally, folder = Tally(), place.new()
    data, whole = write_imagenet(folder.parent / "data"), Run(folder.with_name("workers-0"))
    for workers in (0, 1, 3):
        run = Run(folder.with_name(f"workers-{workers}"))
        end = run_child(partial(_train_streamed, method, data, workers, run.folder))
        problem = str(end) if end.kind != "finished" else find_difference(run, whole)
        if problem:
            tally.wrong.append(f"{method} with {workers} workers: {problem}")
        else:
            tally.counts["equal"] += 1
    return tally


def _train_streamed(method: str, data: Path, workers: int, folder: Path) -> None:
    changes = (*name_method(method), "schedule.epochs=2", "schedule.rampup_epochs=0")
    train_tiny(streamed_recipe(data, workers, *changes), folder)


def check_changes(place: Place) -> Tally:
    """Recipe, data or versions are others when a stopped run is resumed."""
    tally, stopped = Tally(), place.stopped()
    for old, new in (("0.1", "0.2"), ("dual-student", "cs"), ("seed = 0", "seed = 1")):
        run = place.copy(stopped)
        text = run.recipe.read_text()
        run.recipe.write_text(text.replace(old, new, 1))
        _expect(run_child(partial(resume, run.folder)), "recipe.toml", f"{old} → {new}", tally)
    for name, change in _list_data_changes():
        run = place.copy(stopped)
        end = run_child(partial(_resume_on, run, change))
        _expect(end, "images or labels", name, tally)
    run = place.copy(stopped)
    about = run.read_about()
    write_sealed(run.about, about | {"versions": about["versions"] | {"torch": "1.0"}})
    end = place.finish(run.folder, tally, "another version of torch")
    if any("torch 1.0" in text for text in end.warnings):
        tally.counts["warned"] += 1
    else:
        tally.wrong.append("no warning of another version of torch")
    return tally


def _list_data_changes() -> Iterator[tuple[str, Callable[[Images], Images]]]:
    def other_pixel(images: Images) -> Images:
        pixels = images.pixels.clone()
        pixels[0, 0, 3, 3] += 1
        return Images(images.name, pixels, images.labels, images.classes)

    def other_label(images: Images) -> Images:
        labels = (images.labels + (torch.arange(len(images)) == 0)) % 10
        return Images(images.name, images.pixels, labels, images.classes)

    yield "another pixel", other_pixel
    yield "another label", other_label


def _resume_on(run: Run, change: Callable[[Images], Images]) -> None:
    source = catalog.SOURCES["digits-8x8"]
    changed = source._replace(load=lambda part, folder: change(load_digits_8x8(part)))
    catalog.SOURCES["digits-8x8"] = changed
    resume(run.folder)


def _expect(end: End, named: str, what: str, tally: Tally) -> None:
    if end.kind == "refused" and named in end.text and "\n" not in end.text:
        tally.counts["refused"] += 1
    else:
        tally.wrong.append(f"{what}: {end}")


def check_not_finite(place: Place) -> Tally:
    """Losses and inputs that are not finite are refused, and a good checkpoint is kept."""
    tally, folder = Tally(), place.new()
    wild = tiny_recipe("dual-student", "optimizer.learning_rate=1e30")
    _expect(run_child(partial(train_tiny, wild, folder)), "learning_rate", "learning rate", tally)
    recipe = tiny_recipe("dual-student", "network.name=mlp")
    for value in (np.nan, np.inf, -np.inf):
        vectors = np.random.default_rng(0).normal(size=(60, 8))
        vectors[7, 3] = value
        work = partial(_train_on, vectors, recipe, place.new())
        _expect(run_child(work), "", f"features with {value}", tally)
    return tally


def _train_on(vectors: NDArray[np.float64], recipe: Recipe, folder: Path) -> None:
    train(recipe, folder, data=prepare_arrays(vectors, np.arange(len(vectors)) % 3))


def check_teaching(count: int, place: Place) -> Tally:
    """Kill a program to which labels come in: what was said to be saved must be there."""
    tally, draw = Tally(), random.Random(0)
    folder = make_folder(place.new())
    for _ in range(count):
        wrong = find_loss(folder, draw.uniform(0.05, 0.5))
        tally.counts["nothing lost"] += not wrong
        tally.wrong += [wrong] if wrong else []
    return tally


def list_checks(short: bool) -> Iterable[tuple[str, str, Callable[[Place], Tally]]]:
    """Check, its subject, and what does it; the short form takes seconds."""
    kills, every, flips, count = (3, 20, 2, 1) if short else (50, 1, 100, 50)
    files = ["run.json", "recipe.toml", "split.json", "metrics.jsonl", "checkpoint.safetensors"]
    stopped = files[-1:] if short else [*files, "checkpoint-before.safetensors"]
    for method in ("dual-student", "temporal") if short else NAMES:
        yield "kills", method, partial(check_kills, method, kills)
    for problem in ("ENOSPC", "EACCES", "EFBIG"):
        yield "failing writes", problem, partial(check_failing_writes, problem, every)
    for name in stopped:
        yield "damaged, stopped", name, partial(check_damaged_stopped, name, flips)
    for name in (*files, "model.safetensors", "result.json"):
        yield "damaged, finished", name, partial(check_damaged_finished, name, flips)
    for name in ("SIGTERM",) if short else ("SIGINT", "SIGTERM", "SIGHUP"):
        yield "signals", name, partial(check_signals, name, count)
    for method in () if short else NAMES:
        yield "data workers", method, partial(check_workers, method)
    yield "two processes", "", partial(check_two_processes, count)
    yield "changed", "recipe, data, versions", check_changes
    yield "not finite", "losses, inputs", check_not_finite
    yield "kills", "teach", partial(check_teaching, kills)
