"""Data settings, and the preparation of the data that they name."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, Self

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor

from dualstudent.data.broken import Tally
from dualstudent.data.datasets import DataSet, ImageFiles, Images, Part
from dualstudent.data.file_samples import FileSamples
from dualstudent.data.images.cache import DecodedImages, decode_images
from dualstudent.data.images.decoding import LARGEST_SIDE, Channels
from dualstudent.data.images.listing import Listing, is_text
from dualstudent.data.images.own import list_images, prepare_files
from dualstudent.data.images.tables import Columns
from dualstudent.data.paths import find_data_folder
from dualstudent.data.prepared import Origin, PreparedData
from dualstudent.data.samples import ImageSamples, Samples
from dualstudent.data.sources.catalog import SOURCES, DataSetName, load
from dualstudent.data.splits import (
    choose_images,
    choose_labeled,
    choose_share,
    parse_share,
    prefer_unlabeled,
    read_manifest,
)
from dualstudent.data.transforms.normalization import Normalization
from dualstudent.data.transforms.policy import Transforms
from dualstudent.errors import UserError
from dualstudent.parallel import Progress, count_cores
from dualstudent.settings import Settings

OWN_IMAGE_SIZE = 32  # default size of own images in pixels a side

# Keys that only published data sets have, and keys that only own images have.
OF_PUBLISHED = (
    *("source", "target", "target_labels", "images", "classes", "foreign", "imbalance"),
    *("split", "folder", "workers"),
)
_OF_OWN = (
    "target_path",
    "adapts",
    "unlabeled",
    "path_column",
    "label_column",
    "part_column",
    "domain_column",
    "validation",
)


class DataSettings(Settings):
    """The data of a run: a published data set, own images, or data from Python."""

    source: DataSetName | None = Field(
        None,
        description="the labeled data set; without source and path, data are handed over from "
        "Python",
    )
    target: DataSetName | None = Field(
        None, description="the data set to adapt to, for unlabeled images and test; default: source"
    )
    target_labels: Annotated[int, Field(ge=0)] = Field(
        0, description="labeled samples of the target, balanced over the classes"
    )
    images: Annotated[int, Field(gt=0)] | None = Field(
        None,
        description="number of training images of the source to use, balanced over the classes; "
        "default: all",
    )
    labels: int | str = Field(
        "all",
        description="labeled samples of the source or of own images, balanced over the classes: a "
        "number, a share such as '10%', or 'all'; own images beyond it count as unlabeled",
    )
    split_seed: Annotated[int, Field(ge=0)] | None = Field(
        None,
        description="seed of the choice of images, labels and validation part; default: the seed "
        "of the run",
    )
    classes: Annotated[tuple[str, ...], Field(min_length=2)] | None = Field(
        None, strict=False, description="names of the classes to use, in order; default: all"
    )
    foreign: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of the unlabeled images that are replaced by images of the classes that "
        "classes leaves out; no label and no test image is of them",
    )
    imbalance: float = Field(
        1.0,
        ge=1,
        description="how many times as many training images and labels the first class has as the "
        "last; those between form a geometric series, and the test part stays as it is",
    )
    split: Path | None = Field(
        None, strict=False, description="a split.json to repeat instead of drawing one"
    )
    path: Path | None = Field(
        None,
        strict=False,
        description="own images instead of a source: a folder with a folder per class, or a CSV or "
        "Parquet file of paths and labels",
    )
    target_path: Path | None = Field(
        None, strict=False, description="folder of own images to adapt to; path is then the source"
    )
    adapts: bool = Field(
        False,
        description="whether path holds a source and a target; 'train --data' finds out, and "
        "holds out labels of the source only",
    )
    unlabeled: str = Field(
        "unlabeled", min_length=1, description="name of the folder of unlabeled images in path"
    )
    path_column: str | None = Field(None, description="column of paths, if path is a table")
    label_column: str | None = Field(None, description="column of labels, blank where unknown")
    part_column: str | None = Field(None, description="column that says train or test")
    domain_column: str | None = Field(
        None, description="column that says source or target; '' if none does"
    )
    channels: Channels = Field(
        3,
        description="channels of own images: 3 for color, 1 for gray; 1 also turns the colors of a "
        "published data set gray",
    )
    validation: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of the labels of own images to hold out for evaluation if there is no "
        "test part, from each class (of two domains: of the source); exact copies of these "
        "images are not used either",
    )
    image_size: Annotated[int, Field(gt=0, le=LARGEST_SIDE)] | None = Field(
        None, description="pixels a side; default: that of the source, 32 for own images"
    )
    folder: Path | None = Field(
        None, strict=False, description="data folder; default: $DUALSTUDENT_DATA, else a cache"
    )

    workers: Annotated[int, Field(ge=0, le=256)] | None = Field(
        None, description="processes that read images; default: one per core for ImageNet, else 0"
    )
    broken_share: float = Field(
        0.01, ge=0, lt=1, description="largest accepted share of unreadable images"
    )

    @field_validator("labels")
    @classmethod
    def _check_labels(cls, labels: int | str) -> int | str:
        if labels != "all" and not (isinstance(labels, int) and labels > 0):
            parse_share(str(labels))
        return labels

    @field_validator("split", "folder", "path", "target_path")
    @classmethod
    def _make_absolute(cls, path: Path | None) -> Path | None:
        if path is None:
            return None
        whole = path.expanduser().absolute()
        if not is_text(str(whole)):
            raise ValueError(f"{str(whole)!r} is not UTF-8, as recipes are; rename the folder")
        return whole

    @model_validator(mode="after")
    def _check_one_kind(self) -> Self:
        wrong: tuple[str, ...] = _OF_OWN
        why = "is for own images; name their path"
        if self.path is not None:
            wrong, why = OF_PUBLISHED, "is for published data sets and does not go with path"
        for key in wrong:
            if getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(f"{key} {why}")
        if self.channels != 3 and self.source is None and self.path is None:
            raise ValueError("channels is for published data sets and own images; name one")
        if self.foreign and (self.classes is None or self.labels == "all" or self.target):
            raise ValueError(
                "foreign replaces unlabeled images by those of other classes: name the classes to "
                "use, set labels to less than all, and leave target out"
            )
        if self.target_labels and self.target is None:
            raise ValueError("target_labels are labels of the target; name a target")
        if self.target_path is not None and self.labels != "all":
            raise ValueError("labels does not go with target_path, which uses all of the source")
        return self

    @property
    def domains(self) -> tuple[str, ...]:
        """Names of the source and, if there is one, of the target."""
        own = (path.stem for path in (self.path, self.target_path) if path is not None)
        return tuple(name for name in (self.source, self.target, *own) if name is not None)

    @property
    def evaluated_part(self) -> Literal["test", "validation", "source validation"]:
        """The part that a run is evaluated on; of two domains, validation is of the source."""
        if not self.validation:
            return "test"
        return "source validation" if self.adapts or self.target_path else "validation"

    def find_split_seed(self, seed: int) -> int:
        """Return the seed of the choice of samples in a run with ``seed``.

        Example:
            >>> DataSettings().find_split_seed(3), DataSettings(split_seed=0).find_split_seed(3)
            (3, 0)
        """
        return seed if self.split_seed is None else self.split_seed

    def list_images(self) -> Listing:
        """List the own images of ``path``."""
        assert self.path is not None
        columns = Columns(self.path_column, self.label_column, self.part_column, self.domain_column)
        return list_images(self.path, self.target_path, self.unlabeled, columns)

    def decode(self, progress: Progress | None = None) -> DecodedImages:
        """Decode the own images of ``path`` at the size of the run."""
        size = self.image_size or OWN_IMAGE_SIZE
        return decode_images(self.list_images(), size, self.channels, progress=progress)


def prepare(
    settings: DataSettings,
    seed: int,
    transforms: Transforms | None = None,
    normalization: Normalization | None = None,
    images: DecodedImages | None = None,
) -> PreparedData:
    """Load the data of ``settings`` and hide the labels that the run must not see.

    Args:
        settings: which data, and how many labels.
        seed: seed of the run; chooses the labels, unless ``settings.split_seed`` does.
        transforms: perturbations of weak and strong views; default: none.
        normalization: normalization of the pixel values.
        images: the images of ``settings.path``, if they have been decoded already.

    Raises:
        UserError: if the data are missing or do not fit the settings.
    """
    transforms, normalization = transforms or Transforms(), normalization or Normalization()
    drawn = settings.find_split_seed(seed)
    if settings.path is not None:
        images = images or settings.decode()
        data = prepare_files(
            images,
            settings.labels,
            settings.validation,
            drawn,
            transforms,
            normalization,
            settings.evaluated_part == "source validation",
        )
    elif settings.source is None:
        raise UserError(
            "the recipe has no data.source: its data are handed over from Python; pass them as the "
            "argument data of train, resume or load_trained"
        )
    else:
        data = _prepare_published(settings, settings.source, drawn, transforms, normalization)
    return replace(data, origin=Origin(settings, seed, transforms, normalization))


def _prepare_published(
    settings: DataSettings,
    name: DataSetName,
    seed: int,
    transforms: Transforms,
    normalization: Normalization,
) -> PreparedData:
    if settings.target and SOURCES[settings.target].family == SOURCES[name].family:
        raise UserError(
            f"data.target = {settings.target!r} has the images of data.source = {name!r}; name "
            "another data set to adapt to, or none"
        )
    source = _load(settings, name, "train")
    if settings.images is not None or settings.imbalance > 1:
        source = source.select(choose_images(source, settings.images, seed, settings.imbalance))
    target = None
    if settings.target is not None:
        target = _load(settings, settings.target, "train")
        _check_same_task(source, target)
    test = _load(settings, settings.target or name, "test")
    labeled = _choose_labeled(settings, source, seed)
    foreign = _choose_foreign(settings, name, len(source) - len(labeled), seed)
    parts = [part for part in (source, target, foreign) if part is not None]
    labels = torch.full((sum(map(len, parts)),), -1)
    labels[labeled] = source.labels[labeled]
    if target is not None and settings.target_labels:
        chosen = choose_labeled(target, settings.target_labels, seed, setting="target_labels")
        labels[len(source) + chosen] = target.labels[chosen]
        labeled = torch.cat([labeled, len(source) + chosen])
    builder = _SampleBuilder(
        settings.image_size or source.image_size,
        transforms,
        normalization,
        settings.workers,
        Tally(settings.broken_share),
    )
    return PreparedData(
        source.classes,
        builder.build(parts),
        labels,
        labeled,
        _find_unlabeled(settings, source, labels, labeled, seed),
        builder.build([test]),
        test.labels,
        source,
        is_target=None if target is None else torch.arange(len(labels)) >= len(source),
    )


@dataclass(frozen=True)
class _SampleBuilder:
    """Builds samples from data sets, all with the same size and transforms."""

    size: int
    transforms: Transforms
    normalization: Normalization
    workers: int | None
    tally: Tally

    def build(self, parts: Sequence[Images | ImageFiles]) -> Samples:
        """Build the samples of all parts, one after the other."""
        images = [part for part in parts if isinstance(part, Images)]
        if len(images) < len(parts):
            return self._build_streamed(parts)
        if self.workers:
            raise UserError(
                f"data.workers = {self.workers}: {parts[0].name} is in memory and needs none; "
                "leave it out"
            )
        pixels = [part.resize(self.size).pixels for part in images]
        together = pixels[0] if len(pixels) == 1 else torch.cat(pixels)
        return ImageSamples(together, self.transforms, self.normalization)

    def _build_streamed(self, parts: Sequence[Images | ImageFiles]) -> Samples:
        (files,) = parts  # no other data set has the same classes to adapt to
        assert isinstance(files, ImageFiles)
        workers = count_cores() if self.workers is None else self.workers
        return FileSamples(
            files, self.size, self.transforms, self.normalization, workers, self.tally
        )


def _load(settings: DataSettings, name: DataSetName, part: Part) -> Images | ImageFiles:
    images = _load_all_classes(settings, name, part)
    return images if settings.classes is None else images.select_classes(settings.classes)


def _load_all_classes(settings: DataSettings, name: DataSetName, part: Part) -> Images | ImageFiles:
    images = load(name, part, find_data_folder(settings.folder))
    if settings.channels == 3:  # as published
        return images
    if not isinstance(images, Images):
        raise UserError(f"data.channels = 1: {images.name} is read while training; leave it out")
    return images.to_gray()


def _choose_labeled(settings: DataSettings, source: DataSet, seed: int) -> Tensor:
    if settings.split is None:
        if settings.labels == "all":
            return torch.arange(len(source))
        return choose_labeled(source, settings.labels, seed, imbalance=settings.imbalance)
    labeled = read_manifest(settings.split, source)
    asked = settings.labels
    if isinstance(asked, str) and asked != "all":
        asked = len(choose_labeled(source, asked, seed, imbalance=settings.imbalance))
    if asked not in ("all", len(labeled)):
        raise UserError(
            f"data.labels = {settings.labels}, but data.split = {settings.split} has "
            f"{len(labeled)} labels"
        )
    return labeled


def _choose_foreign(
    settings: DataSettings, name: DataSetName, unlabeled: int, seed: int
) -> Images | None:
    """Choose the images of other classes that replace a share of the unlabeled images."""
    if not settings.foreign:
        return None
    assert settings.classes is not None
    everything = _load_all_classes(settings, name, "train")
    if not isinstance(everything, Images):
        raise UserError(f"data.foreign: {everything.name} is not in memory; leave it out")
    others = [each for each in everything.classes if each not in settings.classes]
    count = round(settings.foreign * unlabeled)
    pool = everything.select_classes(others) if others else None
    if pool is None or len(pool) < count:
        raise UserError(
            f"data.foreign = {settings.foreign} of {unlabeled:,} unlabeled images asks for "
            f"{count:,} of other classes than data.classes, but {everything.name} has "
            f"{0 if pool is None else len(pool):,}; use a smaller share, or fewer data.images"
        )
    return pool.select(choose_share(pool.labels, count, seed))


def _find_unlabeled(
    settings: DataSettings, source: DataSet, labels: Tensor, labeled: Tensor, seed: int
) -> Tensor:
    """Return the unlabeled samples of the target; without a target, those of the source.

    If all of these are labeled, return all of them. The foreign samples follow those of the
    source, of which as many are left out.
    """
    if settings.target is not None:
        return prefer_unlabeled(torch.arange(len(source), len(labels)), labels)
    if len(labeled) == len(labels):
        return labeled
    unlabeled = (labels < 0).nonzero().squeeze(1)
    if not settings.foreign:
        return unlabeled
    own, foreign = unlabeled[unlabeled < len(source)], unlabeled[unlabeled >= len(source)]
    kept = choose_share(source.labels[own], len(own) - len(foreign), seed)
    return torch.cat([own[kept], foreign])


def _check_same_task(source: DataSet, target: DataSet) -> None:
    if source.classes != target.classes:
        theirs, ours = (_name_classes(each.classes) for each in (target, source))
        raise UserError(
            f"data.target: {target.name} has the classes {theirs}, {source.name} has {ours}; "
            "adaptation needs the same of both"
        )
    if source.channels != target.channels:
        raise UserError(
            f"data.target: {target.name} has {target.channels} channel(s), {source.name} has "
            f"{source.channels}; data.channels = 1 turns colors gray"
        )


def _name_classes(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown}, … ({len(names)})"
