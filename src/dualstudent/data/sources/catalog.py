"""The data sets by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args, overload

from dualstudent.data.datasets import ImageFiles, Images
from dualstudent.data.images.listing import Part
from dualstudent.data.sources.bundled import load_digits_8x8, load_mnist_5k
from dualstudent.data.sources.cifar import load_cifar10, load_cifar100
from dualstudent.data.sources.imagenet import load_imagenet
from dualstudent.data.sources.mnist import load_mnist
from dualstudent.data.sources.svhn import load_svhn, load_svhn_extra
from dualstudent.data.sources.usps import load_usps

InMemoryName = Literal[
    "cifar10", "cifar100", "svhn", "svhn-extra", "mnist", "usps", "mnist-5k", "digits-8x8"
]
StreamedName = Literal["imagenet"]
DataSetName = Literal[InMemoryName, StreamedName]

_LOADERS: dict[str, Callable[[str, Path], Images | ImageFiles]] = {
    "cifar10": load_cifar10,
    "cifar100": load_cifar100,
    "svhn": load_svhn,
    "svhn-extra": load_svhn_extra,
    "mnist": load_mnist,
    "usps": load_usps,
    "mnist-5k": load_mnist_5k,
    "digits-8x8": load_digits_8x8,
    "imagenet": load_imagenet,
}
assert set(_LOADERS) == set(get_args(DataSetName))


@overload
def load(name: InMemoryName, part: Part, folder: Path) -> Images: ...
@overload
def load(name: DataSetName, part: Part, folder: Path) -> Images | ImageFiles: ...
def load(name: DataSetName, part: Part, folder: Path) -> Images | ImageFiles:
    """The training or test part of a data set.

    Args:
        name: of the data set.
        part: ``"train"`` or ``"test"``.
        folder: the data folder, see :func:`dualstudent.data.sources.files.data_folder`.
    """
    return _LOADERS[name](part, folder)
