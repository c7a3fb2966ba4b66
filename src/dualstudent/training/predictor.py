"""Prediction of image files with a trained model."""

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dualstudent.atomic import create_text_file
from dualstudent.data.broken import BrokenSamples
from dualstudent.data.images.decoding import (
    LARGEST_SIDE,
    Channels,
    UnreadableImage,
    decode,
    resize,
)
from dualstudent.data.images.folders import find_images
from dualstudent.data.images.tables import escape_cell
from dualstudent.data.paths import RIGHTS_TO_IMAGES, path_exists
from dualstudent.data.prepared import PreparedData
from dualstudent.data.samples import Digest, ImageSamples, Samples
from dualstudent.data.sources.catalog import SOURCES
from dualstudent.data.transforms.normalization import Normalization
from dualstudent.data.transforms.policy import Draw, Transforms
from dualstudent.errors import UserError
from dualstudent.parallel import Progress, count_cores, map_threads
from dualstudent.signals import Interrupted, StopRequest
from dualstudent.training.inference import predict
from dualstudent.training.model import check_networks, load_weights
from dualstudent.training.model_file import load_trunk, read_model
from dualstudent.training.run import Run
from dualstudent.training.trainer import build_method
from dualstudent.trunks.samples import ComputedFeatures


@dataclass(frozen=True)
class FilePredictions:
    """Predictions for some image files, in their order.

    Attributes:
        paths: paths of the n readable files.
        probabilities: (n, C) float32, class probabilities of the exported network.
        stable: (n,) bool, whether the image is stable for that network (Eq. 3).
        agree: (n,) bool, whether all headline networks predict the same class; None if there is
            only one.
        unreadable: the other files, with reasons.
    """

    paths: tuple[Path, ...]
    probabilities: Tensor
    stable: Tensor
    agree: Tensor | None
    unreadable: tuple[UnreadableImage, ...]


class Predictor:
    """Predicts image files with the model of a finished run; does not need its data.

    Only weights and a recipe are read, so that an untrusted run cannot execute code.

    Args:
        run: a finished run on own images or on a published data set in memory.

    Attributes:
        classes: class names, in the order of the probabilities.
        network: name of the network whose probabilities are returned.

    Raises:
        UserError: if the run has not finished, or was not trained on square images.
    """

    def __init__(self, run: Run) -> None:
        run = run.deployed  # raises if the run has not finished
        self._recipe = recipe = run.read_recipe()
        tensors, notes = read_model(run)
        self.classes = notes.classes
        shape = notes.shape if notes.trunk is None else notes.trunk.images
        self._shape = _check_shape(run, shape, recipe.data.source)
        if recipe.data.path is None and recipe.data.source is None:
            raise UserError(
                f"{run.folder}: was trained on data handed over from Python, not on files; train "
                "with --data to predict files"
            )
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        trunk = load_trunk(run)
        self._trunk = None if trunk is None else trunk.to(self._device)
        nothing, none = self._use_trunk(self._files([])), torch.empty(0, dtype=torch.int64)
        data = PreparedData(self.classes, nothing, none, none, none, nothing, none)
        check_networks(run, data, tensors)
        self._method = build_method(recipe.split_stages()[-1], data).to(self._device)
        load_weights(run, self._method, tensors)
        self.network = self._method.exported

    def predict(self, paths: Iterable[Path | str] | Path) -> Iterator[FilePredictions]:
        """Predict files, or a single file, chunk by chunk, in bounded memory."""
        files = self._files(_to_paths(paths))
        samples, everything = self._use_trunk(files), torch.arange(len(files))
        alone = len(self._method.headline) == 1
        for chunk in predict(self._method, samples, everything, self._recipe.seed, self._device):
            yield FilePredictions(
                tuple(files.paths[index] for index in chunk.indices.tolist()),
                chunk.probabilities,
                chunk.stable,
                None if alone else chunk.agree,
                files.take_unreadable(),
            )

    def _files(self, paths: Sequence[Path]) -> "_OwnFiles":
        return _OwnFiles(paths, self._shape, self._recipe.transforms, self._recipe.normalization)

    def _use_trunk(self, files: "_OwnFiles") -> Samples:
        return files if self._trunk is None else ComputedFeatures(files, self._trunk)


class _OwnFiles(Samples):
    """Image files that are decoded on demand, in the same way as for training."""

    streamed = True

    def __init__(
        self,
        paths: Sequence[Path],
        shape: tuple[int, int, int],
        transforms: Transforms,
        normalization: Normalization,
    ) -> None:
        self.paths, self._shape = paths, shape
        self._transforms, self._normalization = transforms, normalization
        self._unreadable: dict[int, UnreadableImage] = {}

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def value_range(self) -> float:
        return 1 / min(self._normalization.std)

    def __len__(self) -> int:
        return len(self.paths)

    def make_views(self, indices: Tensor, draws: Sequence[Draw | None]) -> list[Tensor]:
        with map_threads(self._read, indices.tolist(), count_cores()) as results:
            read = list(results)
        if broken := {row: str(e) for row, e in enumerate(read) if isinstance(e, UserError)}:
            raise BrokenSamples(broken)
        rows = [each for each in read if isinstance(each, np.ndarray)]
        pixels = np.stack(rows) if rows else np.empty((0, *self._shape), np.uint8)
        images = ImageSamples(torch.from_numpy(pixels), self._transforms, self._normalization)
        return images.make_views(torch.arange(len(pixels)), draws)

    def update_digest(self, digest: Digest) -> None:
        raise TypeError("files to predict have no fingerprint")

    def to(self, device: torch.device | str) -> Self:
        return self

    def take_unreadable(self) -> tuple[UnreadableImage, ...]:
        """Return the files that could not be read since the last call."""
        found, self._unreadable = self._unreadable, {}
        return tuple(found.values())

    def _read(self, index: int) -> NDArray[np.uint8] | UnreadableImage:
        channels, size = cast(Channels, self._shape[0]), self._shape[-1]
        try:
            return resize(decode(self.paths[index], channels), size)
        except UnreadableImage as error:
            self._unreadable[index] = error
            return error


@dataclass
class PredictionCounts:
    """What :func:`write_predictions` and :func:`list_predictions` found.

    Attributes:
        network: name of the network that predicted.
        predicted: number of predicted images.
        stable: number of stable images among them.
        unreadable: the files that could not be read.
    """

    network: str
    predicted: int = 0
    stable: int = 0
    unreadable: list[UnreadableImage] = field(default_factory=list)


def write_predictions(
    run: Run,
    paths: Iterable[Path | str] | Path,
    output: Path | str,
    each_class: bool = False,
    progress: Progress | None = None,
) -> PredictionCounts:
    """Predict image files and write a CSV file: path, label, probability, stable, agree.

    Args:
        run: a finished run.
        paths: images, and folders that are searched for images.
        output: file to write; must not exist.
        each_class: whether to add a column ``p(CLASS)`` per class.
        progress: receives the number of files that are done.

    Raises:
        UserError: if run, paths or output are wrong; nothing is written.
        Interrupted: after Ctrl-C, SIGTERM or SIGHUP; nothing is written.
    """
    with create_text_file(Path(output)) as sheet:
        return list_predictions(run, paths, csv.writer(sheet).writerow, each_class, progress)


def list_predictions(
    run: Run,
    paths: Iterable[Path | str] | Path,
    add_row: Callable[[list[str]], object],
    each_class: bool = False,
    progress: Progress | None = None,
) -> PredictionCounts:
    """Predict image files, and pass on the rows of :func:`write_predictions`, the header first."""
    files, predictor = _files(paths), Predictor(run)
    counts = PredictionCounts(predictor.network)
    columns = [f"p({name})" for name in predictor.classes] if each_class else []
    add_row(["path", "label", "probability", "stable", "agree", *columns])
    if progress is not None:
        progress.on_start(0, len(files))
    with StopRequest() as stop:
        for found in predictor.predict(files):
            for row in _make_rows(found, predictor.classes, each_class):
                add_row(row)
            counts.predicted += len(found.paths)
            counts.stable += int(found.stable.sum())
            counts.unreadable += found.unreadable
            done = counts.predicted + len(counts.unreadable)
            if progress is not None:
                progress.on_step(done)
            if stop.received:
                raise Interrupted(stop.received, f"{done:,} images", "the same command")
    if not counts.predicted:
        raise UserError(f"none of {len(files)} files can be read; {counts.unreadable[0]}")
    return counts


def _make_rows(
    found: FilePredictions, classes: Sequence[str], each_class: bool
) -> Iterator[list[str]]:
    highest, labels = found.probabilities.max(dim=1)
    agree = [""] * len(labels) if found.agree is None else _to_words(found.agree)
    values = (highest.tolist(), labels.tolist(), found.probabilities.tolist())
    for path, stable, agrees, p, label, every in zip(
        found.paths, _to_words(found.stable), agree, *values, strict=True
    ):
        more = [f"{each:.6f}" for each in every] if each_class else []
        yield [
            escape_cell(str(path)),
            escape_cell(classes[label]),
            f"{p:.6f}",
            stable,
            agrees,
            *more,
        ]


def _to_words(column: Tensor) -> list[str]:
    return [str(truth).lower() for truth in column.tolist()]


def _to_paths(paths: Iterable[Path | str] | Path) -> list[Path]:
    return [Path(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]


def _files(paths: Iterable[Path | str] | Path) -> list[Path]:
    files: dict[Path, None] = {}
    for path in _to_paths(paths):
        if not path_exists(path, RIGHTS_TO_IMAGES):
            raise UserError(f"{path}: does not exist; give images, or folders of images")
        found = find_images(path) if path.is_dir() else [path]
        if not found:
            raise UserError(f"{path}: holds no images")
        files |= dict.fromkeys(found)
    if not files:
        raise UserError("give images, or folders of images")
    return list(files)


def _check_shape(run: Run, shape: tuple[int, ...], source: str | None) -> tuple[int, int, int]:
    """Check that the samples of a run are square images; return (channels, size, size)."""
    if source is not None and SOURCES[source].streamed:
        raise UserError(f"{run.folder}: was trained on {source}, which predict cannot do yet")
    if len(shape) != 3 or shape[0] not in get_args(Channels) or shape[1] != shape[2]:
        raise UserError(f"{run.folder}: was trained on samples of {list(shape)}, not on images")
    channels, size, _ = shape
    if size > LARGEST_SIDE:
        raise UserError(
            f"{run.model}: is for images of {size} pixels a side, at most {LARGEST_SIDE} are used"
        )
    return channels, size, size
