"""Does memory stay flat while 200,000 small files stream through an epoch?

    OMP_NUM_THREADS=1 python -m tests.bench.many_files FOLDER [--files 200000]

Writes so many JPEG files of 32 × 32 pixels into FOLDER, unless they are there, and reads the
batches of one epoch as training does, in this process. Resident memory after every tenth batch goes
into ``results/bench/many-files.csv`` and a picture.
"""

import argparse
import csv
from pathlib import Path

import numpy as np
import psutil
import torch
from matplotlib.figure import Figure
from PIL import Image

from dualstudent import Normalization, Transform, Transforms
from dualstudent.data.batching.loader import BatchLoader, BatchSettings
from dualstudent.data.datasets import ImageFiles
from dualstudent.data.file_samples import FileSamples
from dualstudent.data.prepared import PreparedData

OUT, PICTURE = Path("results/bench/many-files.csv"), Path("docs/images/many-files.png")
IN_A_FOLDER, LABELED, BATCH = 1000, 1000, 256


def name(number: int) -> str:
    return f"{number // IN_A_FOLDER:05}/{number:07}.jpg"


def write_files(folder: Path, count: int) -> None:
    """Colored noise, different in each file."""
    draw = np.random.default_rng(0)
    for number in range(count):
        path = folder / name(number)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(draw.integers(0, 256, (32, 32, 3), np.uint8)).save(path)


def prepare(folder: Path, count: int) -> PreparedData:
    labels = torch.arange(count) % 10
    names = np.array([name(number).encode() for number in range(count)])
    classes = tuple("0123456789")
    files = ImageFiles("many files", folder, names, np.zeros(count, np.int64), labels, classes)
    weak = Transforms(weak=Transform(flip=True, translate=2))
    samples = FileSamples(files, 32, weak, Normalization())
    indices = torch.arange(count)
    known = torch.where(indices < LABELED, labels, -1)
    return PreparedData(
        classes, samples, known, indices[:LABELED], indices[LABELED:], samples, labels
    )


def draw(rows: list[tuple[int, float]]) -> None:
    figure = Figure(figsize=(6, 2.5), layout="constrained")
    axes = figure.subplots()
    files, memory = zip(*rows, strict=True)
    axes.plot(files, memory)
    axes.set(xlabel="files read", ylabel="resident memory, MB", ylim=(0, 1.2 * max(memory)))
    figure.savefig(PICTURE, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=int, default=200_000)
    arguments = parser.parse_args()
    write_files(arguments.folder, arguments.files)
    data = prepare(arguments.folder, arguments.files)
    loader = BatchLoader(data, BatchSettings(size=BATCH, labeled=BATCH // 8), seed=0)
    process, rows = psutil.Process(), list[tuple[int, float]]()
    for step in range(loader.steps_per_epoch):
        loader.batch(step)
        if step % 10 == 0:
            rows.append(((step + 1) * BATCH, process.memory_info().rss / 2**20))
    OUT.parent.mkdir(parents=True, exist_ok=True)
    with OUT.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["files_read", "resident_mb"])
        writer.writerows((files, f"{memory:.1f}") for files, memory in rows)
    draw(rows)
    tenth = len(rows) // 10
    early, late = (
        np.mean([m for _, m in part]) for part in (rows[tenth : 2 * tenth], rows[-tenth:])
    )
    print(f"{rows[-1][0]:,} files read; resident memory {early:.1f} MB early, {late:.1f} MB late")


if __name__ == "__main__":
    main()
