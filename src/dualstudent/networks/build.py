"""Builds networks from their settings."""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any, Union, cast

import torch
from pydantic import (
    ConfigDict,
    Field,
    SerializeAsAny,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from dualstudent import networks
from dualstudent.discovery import allow_imports, find_plugin, import_folder, validate_plugin
from dualstudent.errors import UserError
from dualstudent.generators import seeded_rng
from dualstudent.networks.domains import normalize_by_domain
from dualstudent.networks.network import Network, NetworkSettings

ENTRY_POINTS = "dualstudent.networks"
"""Group of the entry points by which packages add networks."""

_SHARED = set(NetworkSettings.model_fields)  # settings that no network takes itself


class OwnNetworkSettings(NetworkSettings):
    """Settings of a network of others that has no ``Settings``: it gets all that are given."""

    model_config = ConfigDict(extra="allow")


def _find_networks() -> tuple[type[Network], ...]:
    """Import all files of this folder and return every network with settings, by class name."""
    import_folder(networks.__name__, networks.__path__, without="build")
    found = (each for each in _list_subclasses(Network) if "Settings" in vars(each))
    ours = (each for each in found if each.__module__.startswith(f"{networks.__name__}."))
    return tuple(sorted(ours, key=lambda each: each.__name__))


def _list_subclasses(kind: type[Network]) -> Iterator[type[Network]]:
    for below in kind.__subclasses__():
        yield below
        yield from _list_subclasses(below)


NETWORKS = _find_networks()

_NAMES = {network.Settings.model_fields["name"].default for network in NETWORKS}


def _validate_any(
    value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo
) -> NetworkSettings:
    """Validate the settings of one of our networks, or of one of others."""
    if isinstance(value, NetworkSettings):
        return value
    name = value.get("name") if isinstance(value, dict) else None
    found = None
    if isinstance(name, str) and name not in _NAMES:
        found = find_plugin(name, ENTRY_POINTS, info.context)
    if found is None:
        return cast(NetworkSettings, handler(value))
    if not callable(found):
        raise UserError(f"name = {name!r} is not a class or function that makes a network")
    kind: type[NetworkSettings] = getattr(found, "Settings", OwnNetworkSettings)
    return validate_plugin(kind, value, info.context)


if TYPE_CHECKING:
    AnyNetworkSettings = NetworkSettings
else:  # the key ``name`` selects the class
    AnyNetworkSettings = Annotated[
        Union[tuple(network.Settings for network in NETWORKS)],  # noqa: UP007
        Field(discriminator="name"),
        WrapValidator(_validate_any),
        SerializeAsAny(),
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
    with seeded_rng(seed, "initial state", student):
        built = _build(settings, channels, classes)
    if settings.batch_norm == "frozen":
        built.freeze_statistics()
    if settings.batch_norm == "by-domain":
        normalize_by_domain(built, channels)
    # A network of others need not say which images it is for; a trial shows it.
    _check_suits(settings.name, getattr(built, "smallest_image", image_size), image_size)
    return cast(Network, cast(Any, built).to(memory_format=torch.channels_last))


def is_ours(settings: NetworkSettings) -> bool:
    """Return whether the network is part of this package."""
    return settings.name in _NAMES


def _build(settings: NetworkSettings, channels: int, classes: int) -> Network:
    """Call the class: with the number of channels and of classes, then with its settings."""
    own = settings.model_dump(exclude=_SHARED)
    if is_ours(settings):
        (network,) = (network for network in NETWORKS if network.Settings is type(settings))
        return cast(Network, cast(Any, network)(channels, classes, **own))
    # The settings exist, so the user has let it be imported.
    make = find_plugin(settings.name, ENTRY_POINTS, allow_imports([settings.name]))
    try:
        built = make(channels, classes, **own)
    except Exception as error:  # any code may run here
        raise UserError(
            f"network.name = {settings.name!r} fails when it is called with channels = {channels}, "
            f"classes = {classes} and {own}: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(built, Network):
        raise UserError(
            f"network.name = {settings.name!r} makes a {type(built).__name__}, not a student; "
            "return dualstudent.as_student(module, features=…, classes=classes)"
        )
    return built


def count_parameters(
    settings: NetworkSettings, channels: int, classes: int, image_size: int | None
) -> int:
    """Return how many parameters a network would have, without taking memory for them."""
    # Shapes without values; code of others may need values.
    with torch.device("meta") if is_ours(settings) else nullcontext():
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
