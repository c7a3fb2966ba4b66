import multiprocessing
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from dualstudent.data.batching.loader import BatchLoader, BatchSettings
from dualstudent.data.batching.prefetch import Prefetch
from dualstudent.data.batching.readers import Chunk
from dualstudent.data.file_samples import FileSamples
from dualstudent.data.prepare import DataSettings, prepare
from dualstudent.data.prepared import PreparedData
from dualstudent.data.sources.imagenet import load_imagenet
from dualstudent.data.transforms.normalization import Normalization
from dualstudent.data.transforms.policy import Transform, Transforms
from dualstudent.errors import UserError
from dualstudent.signals import STOPS
from tests.support.imagenet import warns_of_the_count, write_imagenet

pytestmark = warns_of_the_count

LINE = Transforms(
    weak=Transform(random_resized_crop=True, flip=True, jitter=(0.4, 0.4, 0.4, 0.1), rotate=10)
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_imagenet(tmp_path_factory.mktemp("data"))


def prepared(folder: Path, workers: int, share: float = 0.01) -> PreparedData:
    settings = DataSettings(
        source="imagenet",
        folder=folder,
        labels="25%",
        image_size=16,
        workers=workers,
        broken_share=share,
    )
    return prepare(settings, 0, LINE, Normalization())


def batches(folder: Path, workers: int, share: float = 0.01) -> BatchLoader:
    return BatchLoader(prepared(folder, workers, share), BatchSettings(size=12, labeled=4), seed=3)


def assert_equal_batches(one: BatchLoader, other: BatchLoader, steps: list[int]) -> None:
    for step in steps:
        first, second = one.batch(step), other.batch(step)
        for key in ("labels", "unlabeled", "indices", "domains"):
            assert torch.equal(getattr(first, key), getattr(second, key)), (step, key)
        for view, expected in zip(second.views, first.views, strict=True):
            assert torch.equal(view, expected), step


def test_workers_make_the_same_batches_in_any_order(folder: Path) -> None:
    here, ahead = batches(folder, workers=0), batches(folder, workers=2)
    before = torch.get_rng_state()
    watched = (*STOPS, signal.SIGCHLD)
    handlers = [signal.getsignal(n) for n in watched]

    # One after the other, back as for a second pass over an epoch, and far ahead.
    assert_equal_batches(here, ahead, [0, 1, 2, 3, 1, 2, 40, 41])
    workers = multiprocessing.active_children()

    assert len(workers) == 2  # the first ones served every request
    assert torch.equal(torch.get_rng_state(), before)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()
    assert handlers == [signal.getsignal(n) for n in watched]
    ahead.close()
    assert multiprocessing.active_children() == []


def test_both_views_of_a_batch_differ_and_labels_fit(folder: Path) -> None:
    data = prepared(folder, workers=0)
    batch = BatchLoader(data, BatchSettings(size=12, labeled=4), seed=3).batch(0)

    assert not torch.equal(batch.views[0], batch.views[1])
    assert torch.equal(batch.labels, data.labels[batch.indices])
    assert (batch.labels[:8] == -1).all()
    assert (batch.labels[8:] >= 0).all()


@dataclass(frozen=True)
class HeldBack:
    """Returns the signals blocked in its process; raises at 5, exits at 40."""

    def __call__(self, number: int) -> Chunk:
        if number == 5:
            raise RuntimeError("a mistake of the programmer")
        if number == 40:
            os.kill(os.getpid(), signal.SIGKILL)
        held = torch.tensor(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
        return Chunk([held.to(torch.uint8).reshape(1, 1, 1, -1)], torch.zeros(1, dtype=torch.int64))


def photos(folder: Path, workers: int) -> FileSamples:
    scale = Normalization(mean=(0,), std=(1,))
    return FileSamples(load_imagenet("train", folder), 16, Transforms(), scale, workers)


@pytest.mark.slow
def test_workers_ignore_signals_and_their_death_is_one_line(folder: Path) -> None:
    with Prefetch(HeldBack(), photos(folder, workers=1), "cpu") as chunks:
        held = chunks.get(4).views[0] * 255
        assert held.round().flatten().tolist() == sorted(STOPS)
        for _ in range(2):  # it does not skip what failed
            with pytest.raises(RuntimeError, match="a mistake of the programmer"):
                chunks.get(5)
        with pytest.raises(UserError, match=r"1 worker process.*died.*data\.workers"):
            chunks.get(40)


def test_workers_end_although_a_failure_refers_to_them(folder: Path) -> None:
    with (
        pytest.raises(RuntimeError, match="a mistake of the programmer") as failure,
        Prefetch(HeldBack(), photos(folder, workers=1), "cpu") as chunks,
    ):
        chunks.get(5)
    assert multiprocessing.active_children() == []
    assert failure.traceback


FORGETFUL = """
import sys

if __name__ == "__main__":
    from dualstudent import BatchLoader, BatchSettings, DataSettings, prepare

    settings = DataSettings(source="imagenet", folder=sys.argv[1], workers=1, image_size=16)
    batches = BatchLoader(prepare(settings, 0), BatchSettings(size=12, labeled=12), 0)
    batches.batch(0)
    raise RuntimeError("nobody closes it")
"""


@pytest.mark.slow
def test_a_program_that_forgets_its_workers_ends_with_them(folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "forgetful.py"
    script.write_text(FORGETFUL)
    # The workers hold the ends of the pipes, too: this waits for all of them.
    finished = subprocess.run(
        [sys.executable, script, folder], capture_output=True, text=True, timeout=100, check=False
    )

    assert finished.returncode == 1
    assert "RuntimeError: nobody closes it" in finished.stderr


def break_some(folder: Path) -> list[Path]:
    paths = sorted((folder / "imagenet" / "train").glob("*/*.JPEG"))[::7]
    for path in paths:
        path.write_bytes(path.read_bytes()[:300])
    return paths


@pytest.mark.parametrize("workers", [0, 1])
def test_broken_images_are_replaced_by_others_of_their_kind(tmp_path: Path, workers: int) -> None:
    folder = write_imagenet(tmp_path / "data", val=1)
    broken = break_some(folder)
    data = prepared(folder, workers, share=0.5)
    assert data.tally is not None
    data.tally.write_to(tmp_path / "log.txt")
    made, whole = BatchLoader(data, BatchSettings(size=12, labeled=4), seed=3), set()

    for step in [*range(6), 2]:
        batch = made.batch(step)
        assert batch.indices.shape == (12,)
        assert torch.equal(batch.labels, data.labels[batch.indices])
        assert (batch.labels[:8] == -1).all()
        assert (batch.labels[8:] >= 0).all()
        (expected,) = prepared(folder, 0).train.make_views(batch.indices, [None])
        assert expected.isfinite().all()  # all of them can be read
        whole.update(batch.indices.tolist())
    made.close()

    named = (tmp_path / "log.txt").read_text().splitlines()
    assert sorted(line.partition(":")[0] for line in named) == [str(path) for path in broken]
    assert data.tally.count == len(broken) == 10


def test_the_replacement_is_a_function_of_seed_and_step(tmp_path: Path) -> None:
    folder = write_imagenet(tmp_path, val=1)
    break_some(folder)
    one, other = (prepared(folder, 0, share=0.5) for _ in range(2))
    for data in (one, other):
        assert data.tally is not None
        data.tally.write_to(tmp_path / "log.txt")
    settings = BatchSettings(size=12, labeled=4)
    first, second = BatchLoader(one, settings, seed=3), BatchLoader(other, settings, seed=3)

    second.batch(4)
    assert_equal_batches(first, second, [5, 0, 1, 2, 3])


def test_too_many_broken_images_stop(tmp_path: Path) -> None:
    folder = write_imagenet(tmp_path / "data", val=1)
    for path in (folder / "imagenet" / "train").glob("*/*.JPEG"):
        path.write_text("no image")

    for share in (0.01, 0.9):  # the latter would allow 900 of the first 1000
        data = prepared(folder, 0, share)
        assert data.tally is not None
        data.tally.write_to(tmp_path / "log.txt")
        with pytest.raises(UserError, match="cannot be read"):
            BatchLoader(data, BatchSettings(size=12, labeled=4), seed=3).batch(0)
