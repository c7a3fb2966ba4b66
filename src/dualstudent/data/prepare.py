"""From the names of data sets to what a run may see: images, and the labels it was given."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor

from dualstudent.data.augment import Augmentation, Normalisation
from dualstudent.data.catalogue import DataSetName, load
from dualstudent.data.files import data_folder
from dualstudent.data.images import Images
from dualstudent.data.samples import ImageSamples, Samples, feed
from dualstudent.data.splits import choose_labeled, read_manifest
from dualstudent.errors import UserError
from dualstudent.settings import Settings

# One of each two would test, or adapt to, what the other trains with.
_SHARE_IMAGES = ({"mnist", "mnist-5k"}, {"svhn", "svhn-extra"})


class DataSettings(Settings):
    """Where images and labels come from."""

    source: DataSetName | None = Field(
        None,
        description="the data set that the labels come from; none: data handed over from Python",
    )
    target: DataSetName | None = Field(
        None, description="the data set to adapt to: unlabeled images and test; default: source"
    )
    labels: Annotated[int, Field(gt=0)] | Literal["all"] = Field(
        "all", description="how many samples of the source have a label, balanced over the classes"
    )
    classes: Annotated[tuple[str, ...], Field(min_length=2)] | None = Field(
        None, strict=False, description="the names of those to keep, in this order; default: all"
    )
    split: Path | None = Field(
        None, strict=False, description="a split.json to repeat instead of drawing one"
    )
    image_size: Annotated[int, Field(gt=0)] | None = Field(
        None, description="pixels a side; default: as the source has them"
    )
    folder: Path | None = Field(
        None, strict=False, description="data folder; default: $DUALSTUDENT_DATA, else a cache"
    )

    @field_validator("split", "folder")
    @classmethod
    def _independent_of_the_working_folder(cls, path: Path | None) -> Path | None:
        return None if path is None else path.expanduser().absolute()


@dataclass(frozen=True)
class PreparedData:
    """What a run sees. The labels of unlabeled and target samples are not in here.

    Attributes:
        classes: the names of the C classes.
        train: N samples, those of the source and, after them, those of the target.
        labels: (N,) int64, −1 wherever the run was given no label.
        labeled: positions of the samples with a label.
        unlabeled: positions of the samples on which students teach each other.
        test: what the run is evaluated on; may be empty.
        test_labels: int64, all known.
        source: the published data set that the labels come from, if they do.
    """

    classes: tuple[str, ...]
    train: Samples
    labels: Tensor
    labeled: Tensor
    unlabeled: Tensor
    test: Samples
    test_labels: Tensor
    source: Images | None = None

    def fingerprint(self) -> str:
        """A SHA-256 of all that the run sees: samples, the labels it was given, and the test."""
        digest = hashlib.sha256()
        self.train.identify(digest)
        feed(digest, self.labels)
        self.test.identify(digest)
        feed(digest, self.test_labels)
        return digest.hexdigest()

    @property
    def everything_labeled(self) -> bool:
        """The fully supervised case, in which labeled samples also teach like unlabeled ones."""
        return len(self.labeled) == len(self.labels)


def prepare(
    settings: DataSettings,
    seed: int,
    augmentation: Augmentation | None = None,
    normalisation: Normalisation | None = None,
) -> PreparedData:
    """Load what ``settings`` name and hide the labels that the run must not see.

    Args:
        settings: which data, how many labels.
        seed: decides which samples have a label.
        augmentation: what perturbs a view; default: nothing.
        normalisation: of the pixel values.
    """
    if settings.source is None:
        raise UserError(
            "the recipe names no data.source: its data are handed over from Python, as the "
            "argument data of train, resume or load_trained"
        )
    if {settings.source, settings.target} in ({settings.source}, *_SHARE_IMAGES):
        raise UserError(
            f"data.target = {settings.target!r} has the images of data.source = "
            f"{settings.source!r}; name another data set to adapt to, or none"
        )
    source = _loaded(settings, settings.source, "train")
    size = settings.image_size or source.pixels.shape[-1]
    labeled = _labeled_positions(settings, source, seed)
    pixels = source.resized(size).pixels
    if settings.target is not None:
        target = _loaded(settings, settings.target, "train")
        _check_same_task(source, target)
        pixels = torch.cat([pixels, target.resized(size).pixels])
        unlabeled = torch.arange(len(source), len(pixels))
    elif len(labeled) == len(source):
        unlabeled = labeled
    else:
        hidden = torch.ones(len(source), dtype=torch.bool)
        hidden[labeled] = False
        unlabeled = hidden.nonzero().squeeze(1)
    labels = torch.full((len(pixels),), -1)
    labels[labeled] = source.labels[labeled]
    test = _loaded(settings, settings.target or settings.source, "test").resized(size)
    seen = (augmentation or Augmentation(), normalisation or Normalisation())
    return PreparedData(
        source.classes,
        ImageSamples(pixels, *seen),
        labels,
        labeled,
        unlabeled,
        ImageSamples(test.pixels, *seen),
        test.labels,
        source,
    )


def _loaded(settings: DataSettings, name: DataSetName, part: Literal["train", "test"]) -> Images:
    images = load(name, part, data_folder(settings.folder))
    return images if settings.classes is None else images.of_classes(settings.classes)


def _labeled_positions(settings: DataSettings, source: Images, seed: int) -> Tensor:
    if settings.split is not None:
        labeled = read_manifest(settings.split, source)
        if settings.labels not in ("all", len(labeled)):
            raise UserError(
                f"data.labels = {settings.labels}, but data.split = {settings.split} has "
                f"{len(labeled)} labels"
            )
        return labeled
    if settings.labels == "all":
        return torch.arange(len(source))
    return choose_labeled(source, settings.labels, seed)


def _check_same_task(source: Images, target: Images) -> None:
    if source.classes != target.classes or source.channels != target.channels:
        raise UserError(
            f"data.target: {target.name} has {len(target.classes)} classes and {target.channels} "
            f"channel(s), {source.name} has {len(source.classes)} and {source.channels}; "
            "adaptation needs the same of both"
        )
