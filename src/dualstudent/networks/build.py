"""Builds networks from their settings."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Union, cast

import torch
from pydantic import Field

from dualstudent import networks
from dualstudent.discovery import import_folder
from dualstudent.errors import UserError
from dualstudent.generators import seeded_rng
from dualstudent.networks.domains import normalize_by_domain
from dualstudent.networks.network import Network, NetworkSettings

_SHARED = set(NetworkSettings.model_fields)  # settings that no network takes itself


def _find_networks() -> tuple[type[Network], ...]:
    """Import all files of this folder and return every network with settings, by class name."""
    import_folder(networks.__name__, networks.__path__, without="build")
    found = (each for each in _list_subclasses(Network) if "Settings" in vars(each))
    return tuple(sorted(found, key=lambda each: each.__name__))


def _list_subclasses(kind: type[Network]) -> Iterator[type[Network]]:
    for below in kind.__subclasses__():
        yield below
        yield from _list_subclasses(below)


NETWORKS = _find_networks()

if TYPE_CHECKING:
    AnyNetworkSettings = NetworkSettings
else:  # the key ``name`` selects the class
    AnyNetworkSettings = Annotated[
        Union[tuple(network.Settings for network in NETWORKS)],  # noqa: UP007
        Field(discriminator="name"),
    ]


def build_network(
    settings: NetworkSettings,
    channels: int,
    classes: int,
    image_size: int | None,
    seed: int,
    student: int,
) -> Network:
    """Build a network whose initial weights are a function of (seed, student).

    It is in channels-last memory format, which makes convolutions on a CPU up to 1.4 times faster.

    Args:
        settings: settings of the network; their class selects the network.
        channels: channels of the images, or number of features.
        classes: C.
        image_size: shorter side of the images in pixels; None for feature vectors.
        seed: seed of the run.
        student: number of the student, from 0.

    Raises:
        UserError: if the network does not suit the data.
    """
    (network,) = (network for network in NETWORKS if network.Settings is type(settings))
    with seeded_rng(seed, "initial state", student):
        # Each network takes the number of channels and of classes, then its own settings.
        built = cast(Any, network)(channels, classes, **settings.model_dump(exclude=_SHARED))
    if settings.batch_norm == "frozen":
        built.freeze_statistics()
    if settings.batch_norm == "by-domain":
        normalize_by_domain(built, channels)
    _check_suits(settings.name, built.smallest_image, image_size)
    return cast(Network, built.to(memory_format=torch.channels_last))


def count_parameters(
    settings: NetworkSettings, channels: int, classes: int, image_size: int | None
) -> int:
    """Return how many parameters a network would have, without taking memory for them."""
    with torch.device("meta"):  # shapes without values
        built = build_network(settings, channels, classes, image_size, seed=0, student=0)
    return sum(parameter.numel() for parameter in built.parameters())


def _check_suits(name: str, smallest: int | None, image_size: int | None) -> None:
    if smallest is None or image_size is None:
        if smallest != image_size:
            wants, has = "images", "feature vectors"
            if smallest is None:
                wants, has = has, wants
            raise UserError(f"the network {name!r} is for {wants}, the data are {has}")
    elif image_size < smallest:
        raise UserError(
            f"the network {name!r} needs images of at least {smallest} "
            f"pixels a side, the data have {image_size}; set data.image_size"
        )
